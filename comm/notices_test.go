package comm

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/pml"
)

// A rail is described if something went wrong with it, by side and kind of error.
func TestDescribeErrors(t *testing.T) {
	require.Empty(t, describeErrors(pml.RailStatus{Peer: 1, Rail: "tcp:r0", Health: 1000}))
	for want, r := range map[string]pml.RailStatus{
		"late 2, local errors {Path:0 Device:0 Timeout:0 Protocol:0}, path errors {Path:0 Device:0 Timeout:0 Protocol:0}, remote errors {Path:0 Device:0 Timeout:0 Protocol:0}": {Late: 2},
		"late 0, local errors {Path:0 Device:1 Timeout:0 Protocol:0}, path errors {Path:0 Device:0 Timeout:0 Protocol:0}, remote errors {Path:0 Device:0 Timeout:0 Protocol:0}": {LocalErrors: pml.ErrorCounts{Device: 1}},
		"late 0, local errors {Path:0 Device:0 Timeout:0 Protocol:0}, path errors {Path:0 Device:0 Timeout:3 Protocol:0}, remote errors {Path:0 Device:0 Timeout:0 Protocol:0}": {PathErrors: pml.ErrorCounts{Timeout: 3}},
		"late 0, local errors {Path:0 Device:0 Timeout:0 Protocol:0}, path errors {Path:0 Device:0 Timeout:0 Protocol:0}, remote errors {Path:4 Device:0 Timeout:0 Protocol:0}": {RemoteErrors: pml.ErrorCounts{Path: 4}},
	} {
		r.Peer, r.Rail = 1, "tcp:r0"
		require.Equal(t, "rail tcp:r0 to rank 1: "+want, describeErrors(r))
		require.Equal(t, "mpigo: rank 7:   rail tcp:r0 to rank 1: "+want+"\n", railErrors(7, []pml.RailStatus{{Peer: 2}, r}))
	}
}

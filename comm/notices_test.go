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
		"late: 2":                {Late: 2},
		"slow, late: 1":          {Slow: true, Late: 1},
		"local device errors: 1": {LocalErrors: pml.ErrorCounts{Device: 1}},
		"path timeout errors: 3": {PathErrors: pml.ErrorCounts{Timeout: 3}},
		"remote path errors: 4, remote protocol errors: 1": {RemoteErrors: pml.ErrorCounts{Path: 4, Protocol: 1}},
	} {
		r.Peer, r.Rail = 1, "tcp:r0"
		require.Equal(t, "rail tcp:r0 to rank 1: "+want, describeErrors(r))
		require.Equal(t, "mpigo: rank 7:   rail tcp:r0 to rank 1: "+want+"\n", railErrors(7, []pml.RailStatus{{Peer: 2}, r}))
	}
}

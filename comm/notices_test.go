package comm

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/pml"
)

func TestDescribeRail(t *testing.T) {
	cause := &btl.Error{Rail: "ibverbs:rxe0/1", Peer: 3, Class: btl.ClassPath, Native: "IBV_WC_RETRY_EXC_ERR", Err: errors.New("no answer\nat all")}
	for want, e := range map[string]pml.RailEvent{
		"rail ibverbs:rxe0/1 to rank 3 failed: path: IBV_WC_RETRY_EXC_ERR: no answer; at all; continuing on the one that is left":            {Rail: "ibverbs:rxe0/1", Peer: 3, Cause: cause, Left: 1},
		"rail ibverbs:rxe0/1 to rank 3 failed: path: IBV_WC_RETRY_EXC_ERR: no answer; at all; continuing on the 2 that are left":             {Rail: "ibverbs:rxe0/1", Peer: 3, Cause: cause, Left: 2},
		"rail ibverbs:rxe0/1 to rank 3 failed: path: IBV_WC_RETRY_EXC_ERR: no answer; at all; no other rail there is up: waiting for a rail": {Rail: "ibverbs:rxe0/1", Peer: 3, Cause: cause},
		"rail ibverbs:rxe0/1 to rank 3 is back":                   {Rail: "ibverbs:rxe0/1", Peer: 3, Up: true, Again: true},
		"rail ibverbs:rxe0/1 to rank 3 is up, for the first time": {Rail: "ibverbs:rxe0/1", Peer: 3, Up: true},
	} {
		assert.Equal(t, want, describeRail(e))
	}
}

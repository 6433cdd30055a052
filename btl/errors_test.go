package btl

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorNamesRailAndCause: an error names the rail and the cause. Its class stands before the
// cause, except for ClassPath, because the error already names the rail.
func TestErrorNamesRailAndCause(t *testing.T) {
	cause := errors.New("no answer")
	for want, e := range map[string]Error{
		"rail a to rank 3: ENETDOWN: no answer": {Peer: 3, Class: ClassPath, Native: "ENETDOWN", Err: cause},
		"rail a to rank 3: no answer":           {Peer: 3, Class: ClassPath, Err: cause},
		"rail a to rank 3: cut":                 {Peer: 3, Class: ClassPath, Native: "cut"},
		"rail a to rank 3: path":                {Peer: 3, Class: ClassPath},
		"rail a: device: no answer":             {Peer: AllPeers, Class: ClassDevice, Err: cause},
		"rail a to rank 0: timeout: PROBE":      {Class: ClassTimeout, Native: "PROBE"},
	} {
		e.Rail = "a"
		require.EqualError(t, &e, want)
	}
}

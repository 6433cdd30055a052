package tcp

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// TestCrossingHellosLeaveOneConnection: both ends have connected, and the lower rank does not
// insist on its attempt, because an earlier one has failed. The ends must not both accept the
// other's attempt, because then both would be lost.
func TestCrossingHellosLeaveOneConnection(t *testing.T) {
	leavesNothing(t)
	cfg := Config{Size: 2, Local: loopback4, Secret: secret}
	a, b := newAt(t, cfg, 0, &mate{}), newAt(t, cfg, 1, &mate{})
	for range 3 {
		ea, eb := connectTo(t, a, 1, b.Address()), connectTo(t, b, 0, a.Address())
		ea.pause.failures = 1
		for _, m := range []*module{a, b} {
			until(t, "an unauthenticated peer", func() bool {
				m.acceptConnections(m.locals[0].listener)
				return len(m.unauthenticated) == 1
			})
		}
		for _, e := range []*endpoint{ea, eb} {
			until(t, "its hello", func() bool {
				e.attempt.step()
				return e.attempt.stage == stageAnswer
			})
		}
		for _, m := range []*module{a, b} {
			m.deferred = &btl.Error{} // so that the hello waits
			until(t, "the peer's hello", func() bool {
				m.unauthenticated[0].step()
				return m.authenticatedWaiting == 1
			})
			m.deferred = nil
		}
		for i, m := range []*module{a, b} { // at the same time
			m.answerHello(m.unauthenticated[0], m.peers.Of(1 - i)[0])
		}
		until(t, "a connection", func() bool {
			require.Equal(t, []btl.State{btl.Up, btl.Up}, []btl.State{ea.State(), eb.State()})
			return ea.phase == phaseReady && eb.phase == phaseReady
		}, a, b)
		op := post(t, ea, []byte{1})
		until(t, "a fragment", func() bool { return op.done }, a, b)
		ea.Fail(errors.New("enough"))
		eb.Fail(errors.New("enough"))
		until(t, "the end", func() bool { return ea.State() == btl.Drained && eb.State() == btl.Drained }, a, b)
	}
}

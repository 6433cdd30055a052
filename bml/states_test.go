package bml

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// toPeerState brings a wire that was just made to the state in which rank 0 sees rank 1.
var toPeerState = map[PeerState]func(w *wire){
	PeerNew:        func(*wire) {},
	PeerConnecting: resolve,
	PeerUp:         resolve,
	PeerDegraded: func(w *wire) {
		resolve(w)
		w.rails[0][0].lose(1, pathError(0))
	},
	PeerNoPath: func(w *wire) {
		resolve(w)
		for i, rail := range w.rails {
			rail[0].lose(1, pathError(i))
		}
	},
	PeerFailing: func(w *wire) {
		resolve(w)
		w.rails[0][0].fail(1, peerGone(0))
	},
	PeerLost: func(w *wire) { w.ranks[0].Close(btl.ErrClosed) },
}

func resolve(w *wire) { _ = w.ranks[0].Resolve(w.ranks[0].Peer(1)) }

// Events that happen to rank 1, as rank 0 sees it.
func processEnds(w *wire) { w.rails[0][0].fail(1, peerGone(0)) }
func breaksProtocol(w *wire) {
	w.arrive(0, 1, 0, tagNumbered, make([]byte, testHeaderBytes-1))
}
func closes(w *wire) { w.ranks[0].Close(btl.ErrClosed) }

// failsWith makes the event that the i-th rail fails and drains.
func failsWith(i int) func(w *wire) {
	return func(w *wire) { w.rails[i][0].lose(1, pathError(i)) }
}

// returns makes the event that the i-th rail comes back.
func returns(i int) func(w *wire) {
	return func(w *wire) {
		w.mended = true
		rl := &w.ranks[0].Peer(1).rails[i]
		for range 1000 {
			if w.pass(msec); rl.state == railProbing {
				break
			}
		}
		w.arrive(i, 1, 0, TagProbeAck, railMessage(railHeader{sender: uint8(i), receiver: uint8(i), epoch: rl.endpoint.Epoch()}))
	}
}

// losesMessages is the event that the peer has taken less of rail 0 than was delivered.
func losesMessages(w *wire) {
	epoch := w.ranks[0].Peer(1).rails[0].recovery.epoch
	w.arrive(0, 1, 0, TagRailDownAck, railMessage(railHeader{counters: deliveryCounters{epoch: epoch, delivered: 0, taken: 1}}))
}

// carries has rail 0 deliver two messages to rank 1.
func carries(w *wire) { w.rails[0][0].endpoints[1].delivered = 2 }

// transition is an event that moves rank 1, as rank 0 sees it, from one state to another.
type transition struct {
	name     string
	from, to PeerState
	rails    int
	event    func(w *wire)
	// change, if set, changes the wire before it is made.
	change func(w *wire)
}

var peerTransitions = []transition{
	{"rails found", PeerNew, PeerConnecting, 1, resolve, func(w *wire) { w.startDown = true }},
	{"process ends", PeerNew, PeerFailing, 1, processEnds, nil},
	{"rail of this rank drains", PeerNew, PeerFailing, 1, func(w *wire) {
		w.rails[0][0].fail(btl.AllPeers, pathError(0))
		w.ranks[0].cfg.Resolve = func(int) ([]Route, error) { return nil, btl.ErrUnreachable }
		resolve(w)
	}, nil},
	{"no rail leads there", PeerNew, PeerLost, 1, func(w *wire) {
		w.ranks[0].cfg.Resolve = func(int) ([]Route, error) { return nil, nil }
		resolve(w)
	}, nil},
	{"protocol broken", PeerNew, PeerFailing, 1, breaksProtocol, nil},
	{"closed", PeerNew, PeerLost, 1, func(w *wire) {
		w.ranks[0].Peer(1)
		closes(w)
	}, nil},

	{"rail up", PeerConnecting, PeerUp, 1, returns(0), nil},
	{"one of two up", PeerConnecting, PeerUp, 2, returns(1), nil},
	{"process ends", PeerConnecting, PeerFailing, 1, processEnds, nil},
	{"grace time over", PeerConnecting, PeerFailing, 1, func(w *wire) { w.pass(11 * sec) }, nil},
	{"process found ended", PeerConnecting, PeerFailing, 1, func(w *wire) {
		w.rails[0][0].openError = peerGone(0)
		w.pass(6 * msec)
	}, nil},
	{"protocol broken", PeerConnecting, PeerFailing, 1, breaksProtocol, nil},
	{"closed", PeerConnecting, PeerLost, 1, closes, nil},

	{"rail failed", PeerUp, PeerDegraded, 2, failsWith(0), nil},
	{"last rail failed", PeerUp, PeerNoPath, 1, failsWith(0), nil},
	{"process ends", PeerUp, PeerFailing, 2, processEnds, nil},
	{"no rail takes an operation", PeerUp, PeerFailing, 2, func(w *wire) {
		w.rails[0][0].down[1] = errors.New("broken")
		w.ranks[0].send(1, "")
	}, nil},
	{"rail closed", PeerUp, PeerFailing, 1, func(w *wire) {
		w.rails[0][0].fail(1, &btl.Error{Class: btl.ClassClosed, Side: btl.SideRemote})
	}, nil},
	{"no rail can come back", PeerUp, PeerFailing, 1, failsWith(0), func(w *wire) { w.grace = 0 }},
	{"messages lost", PeerUp, PeerFailing, 2, func(w *wire) {
		carries(w)
		failsWith(0)(w)
		returns(0)(w)
		losesMessages(w)
	}, nil},
	{"protocol broken", PeerUp, PeerFailing, 2, breaksProtocol, nil},
	{"closed", PeerUp, PeerLost, 2, closes, nil},

	{"rail returns", PeerDegraded, PeerUp, 2, returns(0), nil},
	{"last rail failed", PeerDegraded, PeerNoPath, 2, failsWith(1), nil},
	{"process ends", PeerDegraded, PeerFailing, 2, processEnds, nil},
	{"messages lost", PeerDegraded, PeerFailing, 2, func(w *wire) {
		carries(w)
		w.ranks[0].Peer(1).rails[0].recovery.ours = deliveryCounters{epoch: 1, delivered: 2}
		losesMessages(w)
	}, nil},
	{"protocol broken", PeerDegraded, PeerFailing, 2, breaksProtocol, nil},
	{"closed", PeerDegraded, PeerLost, 2, closes, nil},

	{"rail returns", PeerNoPath, PeerUp, 1, returns(0), nil},
	{"one of two returns", PeerNoPath, PeerDegraded, 2, returns(1), nil},
	{"grace time over", PeerNoPath, PeerFailing, 1, func(w *wire) { w.pass(11 * sec) }, nil},
	{"process ends", PeerNoPath, PeerFailing, 1, processEnds, nil},
	{"protocol broken", PeerNoPath, PeerFailing, 1, breaksProtocol, nil},
	{"closed", PeerNoPath, PeerLost, 1, closes, nil},

	{"drained", PeerFailing, PeerLost, 2, func(w *wire) {
		w.ranks[0].Progress()
		w.rails[0][0].drain(1)
		w.rails[1][0].drain(1)
	}, nil},
	{"closed", PeerFailing, PeerLost, 2, closes, nil},
}

// newTransitionWire makes a wire for a transition.
func (c *transition) newWire(t *testing.T) *wire {
	w := newWire(t, 2, func(w *wire) {
		withRails(c.rails)(w)
		w.grace, w.startDown = 10*sec, c.from == PeerConnecting
		if c.change != nil {
			c.change(w)
		}
	})
	toPeerState[c.from](w)
	require.Equal(t, c.from, w.ranks[0].Peer(1).State())
	return w
}

// Each legal transition of a peer happens, by real events.
func TestPeerTransitionsHappen(t *testing.T) {
	table := peerLegal
	defer func() { peerLegal = table }()
	seen := [peerStates]StateSet{}
	for _, c := range peerTransitions {
		t.Run(fmt.Sprintf("%v to %v/%s", c.from, c.to, c.name), func(t *testing.T) {
			require.True(t, table[c.from].has(c.to))
			seen[c.from] |= States(c.to)
			w := c.newWire(t)
			c.event(w)
			if !w.ranks[0].Peer(1).IsLost() {
				require.Equal(t, c.to, w.ranks[0].Peer(1).State())
			}

			// With a table that forbids it, exactly this transition is reported.
			w = c.newWire(t)
			w.ranks[0].mayBeIllegal = true
			peerLegal[c.from] &^= States(c.to)
			c.event(w)
			peerLegal = table
			require.Contains(t, w.ranks[0].illegal, fmt.Sprintf("peer: %v → %v", c.from, c.to))
		})
	}
	require.Equal(t, table, seen, "a legal transition that no test reaches")
}

// Each illegal transition is reported, and happens nevertheless.
func TestIllegalPeerTransitionsReported(t *testing.T) {
	var want []string
	w := newWire(t, 1)
	r := w.ranks[0]
	r.mayBeIllegal = true
	for from := range peerStates {
		for to := range peerStates {
			pr := &Peer{b: r.BML, state: from}
			r.move(pr, to)
			require.Equal(t, to, pr.state)
			if from != to && !peerLegal[from].has(to) {
				want = append(want, fmt.Sprintf("peer: %v → %v", from, to))
			}
		}
	}
	require.Equal(t, want, r.illegal)
	require.EqualValues(t, len(want), r.Stats().Illegal)
	require.Len(t, want, 23)

	r.cfg.OnIllegal = nil
	r.move(&Peer{b: r.BML}, PeerUp)
	require.EqualValues(t, len(want)+1, r.Stats().Illegal, "not counted without OnIllegal")
}

// railTransitions are the events that move rail 0 to rank 1.
var railTransitions = []struct {
	name     string
	from, to railState
	event    func(w *wire)
}{
	{"endpoint failed", railUp, railFailing, func(w *wire) { w.rails[0][0].fail(1, pathError(0)) }},
	{"RAILDOWN", railUp, railFailing, func(w *wire) {
		w.arrive(1, 1, 0, TagRailDown, railMessage(railHeader{epoch: 1}))
	}},
	{"drained", railFailing, railDown, func(w *wire) { w.rails[0][0].drain(1) }},
	{"probes", railDown, railProbing, func(w *wire) {
		w.mended = true
		w.pass(6 * msec)
	}},
	{"is probed", railDown, railProbing, func(w *wire) {
		w.mended = true
		w.ranks[0].Arrived(w.rails[0][0], 1, TagProbe, railMessage(railHeader{epoch: 2}))
	}},
	{"PROBEACK", railProbing, railUp, func(w *wire) {
		w.arrive(0, 1, 0, TagProbeAck, railMessage(railHeader{epoch: 2}))
	}},
	{"own PROBEACK delivered", railProbing, railUp, func(w *wire) {
		w.flying = nil
		w.arrive(0, 1, 0, TagProbe, railMessage(railHeader{epoch: 2}))
		w.end(w.on(TagProbeAck)[0], nil)
	}},
	{"endpoint failed", railProbing, railFailing, func(w *wire) { w.rails[0][0].fail(1, pathError(0)) }},
	{"no PROBE delivered", railProbing, railFailing, func(w *wire) { w.pass(3 * sec) }},
}

// Each legal transition of a rail happens, by real events.
func TestRailTransitionsHappen(t *testing.T) {
	table := railLegal
	defer func() { railLegal = table }()
	seen := [railStates][railStates]bool{}
	for _, c := range railTransitions {
		t.Run(fmt.Sprintf("%v to %v/%s", c.from, c.to, c.name), func(t *testing.T) {
			make := func() (*wire, *Rail) {
				w := newWire(t, 2, withRails(2), withGrace(10*sec))
				resolve(w)
				if c.from != railUp {
					w.rails[0][0].fail(1, pathError(0))
				}
				if c.from == railDown || c.from == railProbing {
					w.rails[0][0].drain(1)
				}
				if w.mended = c.from == railProbing; w.mended {
					w.pass(6 * msec)
				}
				w.mended = false
				rl := &w.ranks[0].Peer(1).rails[0]
				require.Equal(t, c.from, rl.state)
				return w, rl
			}
			require.True(t, table[c.from][c.to])
			seen[c.from][c.to] = true
			w, rl := make()
			c.event(w)
			require.Equal(t, c.to, rl.state)

			// With a table that forbids it, exactly this transition is reported.
			w, _ = make()
			w.ranks[0].mayBeIllegal = true
			railLegal[c.from][c.to] = false
			c.event(w)
			railLegal = table
			require.Contains(t, w.ranks[0].illegal, fmt.Sprintf("rail: %v → %v", c.from, c.to))
		})
	}
	require.Equal(t, table, seen, "a legal transition that no test reaches")
}

// Each transition of a rail that is not legal is reported, also one to the same state.
func TestIllegalRailTransitionsReported(t *testing.T) {
	var want []string
	w := newWire(t, 1)
	r := w.ranks[0]
	r.mayBeIllegal = true
	for from := range railStates {
		for to := range railStates {
			rl := &Rail{state: from}
			r.moveRail(rl, to)
			require.Equal(t, to, rl.state)
			if !railLegal[from][to] {
				want = append(want, fmt.Sprintf("rail: %v → %v", from, to))
			}
		}
	}
	require.Equal(t, want, r.illegal)
	require.Len(t, want, 11)
}

// pairsOf are the legal transitions among states below end.
func pairsOf[S interface {
	~uint8
	fmt.Stringer
}](end S, isLegal func(from, to S) bool) map[string]bool {
	pairs := map[string]bool{}
	for from := range end {
		for to := range end {
			if isLegal(from, to) {
				pairs[fmt.Sprintf("%v → %v", from, to)] = true
			}
		}
	}
	return pairs
}

// documentedStates reads a section of the package comment: the states in the table of states, and
// the pairs in the table of transitions.
func documentedStates(t *testing.T, section string) (states []string, pairs map[string]bool) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n// # "+section+"\n")
	require.True(t, found)
	rest, _, _ = strings.Cut(rest, "\n// # ")
	pairs = map[string]bool{}
	var meaning, to, when, from = 0, 0, 0, ""
	for line := range strings.Lines(rest) {
		row, isTable := strings.CutPrefix(strings.TrimRight(line, "\n"), "//\t")
		cell := func(begin, end int) string { return strings.TrimSpace(row[min(begin, len(row)):min(end, len(row))]) }
		switch {
		case !isTable: // a table ends
			meaning, to, when = 0, 0, 0
		case strings.HasPrefix(row, "state "):
			meaning = strings.Index(row, "meaning")
		case strings.HasPrefix(row, "from "):
			to, when = strings.Index(row, "to "), strings.Index(row, "when")
		case meaning > 0:
			states = append(states, cell(0, meaning))
		case when > 0:
			if f := cell(0, to); f != "" {
				from = f
			}
			if to := cell(to, when); to != "" {
				require.False(t, pairs[from+" → "+to], "twice: %s → %s", from, to)
				pairs[from+" → "+to] = true
			}
		}
	}
	return states, pairs
}

// The tables of states in the package comment are those of the code.
func TestDocumentedStates(t *testing.T) {
	states, pairs := documentedStates(t, "States of a peer")
	require.Equal(t, peerNames[:], states)
	legalPeers := func(from, to PeerState) bool { return peerLegal[from].has(to) }
	require.Equal(t, pairsOf(peerStates, legalPeers), pairs)

	states, pairs = documentedStates(t, "States of a rail")
	require.Equal(t, railNames[:], states)
	legalRails := func(from, to railState) bool { return railLegal[from][to] }
	require.Equal(t, pairsOf(railStates, legalRails), pairs)
}

// States makes a set.
func States(states ...PeerState) StateSet {
	var set StateSet
	for _, s := range states {
		set |= 1 << s
	}
	return set
}

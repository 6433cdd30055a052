package bml

import (
	"encoding/binary"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/progress"
)

// The layer above, in tests of this package. It has two kinds of fragments, and records the calls
// of the BML.

const (
	// A numbered fragment has its number in its header, and a payload.
	tagNumbered btl.Tag = 1
	// A plain fragment is a piece of a long message: its header has the offset.
	tagPlain btl.Tag = 2

	testVersion     = 4
	testHeaderBytes = 16
)

// testT is the part of a test, a benchmark or a fuzz target that the harness needs.
type testT interface {
	require.TestingT
	Errorf(format string, args ...any)
}

// testRank is one rank: its BML, and the layer above.
type testRank struct {
	*BML
	t   testT
	eng *progress.Engine

	got      []string // payloads of the numbered fragments that were handed up
	sent     []error  // what Then was called with, for each numbered fragment
	message  []byte   // what plain fragments are written to
	early    int      // admitted early, and not forgotten
	admit    error    // what Admit returns
	lost     []*Peer
	resumed  []*Transfer
	rechecks int
	events   []RailEvent
	illegal  []string
	// mayBeIllegal: illegal transitions do not fail the test.
	mayBeIllegal bool
}

// newTestRank makes a rank. change, if it is not nil, changes the configuration.
func newTestRank(t testT, rank, size int, eng *progress.Engine, grace int64, change func(cfg *Config)) *testRank {
	r := &testRank{t: t, eng: eng}
	cfg := Config{
		Rank: rank, Size: size, Engine: eng, Upper: r, Version: testVersion, Grace: time.Duration(grace),
		MatchBytes: testHeaderBytes, AnnounceBytes: 32, AnswerBytes: 40, RemoteAccess: btl.CapGet | btl.CapPut,
		OnRail: func(e RailEvent) { r.events = append(r.events, e) },
		OnIllegal: func(what string) {
			r.illegal = append(r.illegal, what)
			if !r.mayBeIllegal {
				t.Errorf("illegal transition: %s", what)
			}
		},
	}
	cfg.Kinds[tagNumbered] = Kind{Name: "NUMBERED", Numbered: true, During: Reachable, Handle: r.numberedArrived}
	cfg.Kinds[tagPlain] = Kind{Name: "PLAIN", During: Reachable, Handle: r.plainArrived}
	if change != nil {
		change(&cfg)
	}
	r.BML = New(cfg)
	return r
}

func (r *testRank) numberedArrived(_ *Peer, _ btl.Module, frag []byte) error {
	r.got = append(r.got, string(frag[testHeaderBytes:]))
	return nil
}

func (r *testRank) plainArrived(_ *Peer, _ btl.Module, frag []byte) error {
	copy(r.message[binary.LittleEndian.Uint64(frag):], frag[testHeaderBytes:])
	return nil
}

// NewPeer implements Upper.
func (r *testRank) NewPeer(int) *Peer { return new(Peer) }

// Admit implements Upper.
func (r *testRank) Admit(_ *Peer, _ btl.Tag, _ []byte, early bool) error {
	if early && r.admit == nil {
		r.early++
	}
	return r.admit
}

// Forget implements Upper.
func (r *testRank) Forget(*Peer, btl.Tag, []byte) { r.early-- }

// Resume implements Upper.
func (r *testRank) Resume(t *Transfer) {
	r.resumed = append(r.resumed, t)
	switch owner := t.Owner.(type) {
	case *longMessage:
		owner.advance()
	case func():
		owner()
	}
}

// Lost implements Upper.
func (r *testRank) Lost(pr *Peer) { r.lost = append(r.lost, pr) }

// Recheck implements Upper.
func (r *testRank) Recheck() { r.rechecks++ }

// op makes a numbered fragment, whose result is appended to sent.
func (r *testRank) op(payload string) *Op {
	op := r.GetOp()
	op.Tag, op.HdrLen, op.Payload = tagNumbered, testHeaderBytes, []byte(payload)
	op.Then = func(op *Op, err error) {
		r.sent = append(r.sent, err)
		r.PutOp(op)
	}
	return op
}

// send posts a numbered fragment.
func (r *testRank) send(to int, payload string) { r.Send(r.Peer(to), r.op(payload)) }

// longMessage is a long message of which a rank moves the pieces, as fragments unless by says
// otherwise.
type longMessage struct {
	r      *testRank
	t      *Transfer
	by     Access
	data   []byte
	isDone bool // every byte is there, and no rail can touch the buffer any more
	err    error
	ends   []error // what Then was called with, for each piece
	// isAdvancing: a piece may end while it is posted.
	isAdvancing bool
}

// newLong makes a long message, of which nothing was handed out.
func (r *testRank) newLong(to int, data []byte) *longMessage {
	m := &longMessage{r: r, data: data}
	m.t = r.Transfer(nil, r.Peer(to), m)
	m.t.Begin(0, int64(len(data)))
	return m
}

// sendLong sends a long message.
func (r *testRank) sendLong(to int, data []byte) *longMessage {
	m := r.newLong(to, data)
	m.advance()
	return m
}

// advance posts pieces as long as there are any.
func (m *longMessage) advance() {
	if m.isAdvancing {
		return
	}
	m.isAdvancing = true
	for m.err == nil && m.next() {
	}
	m.isAdvancing = false
	if m.err == nil && m.t.IsDone() && !m.isDone {
		m.isDone = m.r.IsSettled(m.t)
	}
}

// next posts the next piece. It reports false if there is none now.
func (m *longMessage) next() bool {
	op, from, to := m.r.NextPiece(m.t, m.by, testHeaderBytes)
	if op == nil {
		return false
	}
	op.Payload = m.data[from:to]
	if op.isFragment() {
		op.Tag, op.HdrLen = tagPlain, testHeaderBytes
		binary.LittleEndian.PutUint64(op.Hdr[:], uint64(from))
	}
	op.Then = func(op *Op, err error) {
		m.ends = append(m.ends, err)
		m.r.PutOp(op)
		if err != nil && err != ErrMovesAgain {
			m.err = err
		}
		m.advance()
	}
	m.r.PostPiece(op)
	return true
}

// pattern is n bytes that differ from those of another seed.
func pattern(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i/251 + seed)
	}
	return b
}

package comm_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// call is a call of the package that takes a rank and a tag.
type call struct {
	op      string
	receive bool
	do      func(c *comm.Comm, peer, tag int) error
}

func nonblocking(f func() (request.Request, error)) error {
	r, err := f()
	if err != nil {
		if !r.IsNull() {
			return errors.New("an error and a request")
		}
		return err
	}
	return r.Free()
}

// typed has every point-to-point call, for elements of type T.
func typed[T any](v T) []call {
	b := []T{v}
	return []call{
		{"send", false, func(c *comm.Comm, p, tag int) error { return comm.Send(c, b, p, tag) }},
		{"ssend", false, func(c *comm.Comm, p, tag int) error { return comm.Ssend(c, b, p, tag) }},
		{"bsend", false, func(c *comm.Comm, p, tag int) error { return comm.Bsend(c, b, p, tag) }},
		{"rsend", false, func(c *comm.Comm, p, tag int) error { return comm.Rsend(c, b, p, tag) }},
		{"isend", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.Isend(c, b, p, tag) })
		}},
		{"issend", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.Issend(c, b, p, tag) })
		}},
		{"ibsend", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.Ibsend(c, b, p, tag) })
		}},
		{"irsend", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.Irsend(c, b, p, tag) })
		}},
		{"send init", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.SendInit(c, b, p, tag) })
		}},
		{"ssend init", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.SsendInit(c, b, p, tag) })
		}},
		{"bsend init", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.BsendInit(c, b, p, tag) })
		}},
		{"rsend init", false, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.RsendInit(c, b, p, tag) })
		}},
		{"sendrecv", false, func(c *comm.Comm, p, tag int) error {
			_, err := comm.Sendrecv(c, b, p, tag, []int{0}, comm.ProcNull, 0)
			return err
		}},
		{"sendrecv replace", false, func(c *comm.Comm, p, tag int) error {
			_, err := comm.SendrecvReplace(c, b, p, tag, comm.ProcNull, 0)
			return err
		}},
		{"sendrecv", true, func(c *comm.Comm, p, tag int) error {
			_, err := comm.Sendrecv(c, []int{0}, comm.ProcNull, 0, b, p, tag)
			return err
		}},
		{"sendrecv replace", true, func(c *comm.Comm, p, tag int) error {
			_, err := comm.SendrecvReplace(c, b, comm.ProcNull, 0, p, tag)
			return err
		}},
		{"recv", true, func(c *comm.Comm, p, tag int) error { _, err := comm.Recv(c, b, p, tag); return err }},
		{"irecv", true, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.Irecv(c, b, p, tag) })
		}},
		{"recv init", true, func(c *comm.Comm, p, tag int) error {
			return nonblocking(func() (request.Request, error) { return comm.RecvInit(c, b, p, tag) })
		}},
	}
}

// untyped has every point-to-point call that has no element type.
func untyped() []call {
	return []call{
		{"probe", true, func(c *comm.Comm, p, tag int) error { _, err := c.Probe(p, tag); return err }},
		{"iprobe", true, func(c *comm.Comm, p, tag int) error { _, _, err := c.Iprobe(p, tag); return err }},
		{"mprobe", true, func(c *comm.Comm, p, tag int) error { _, _, err := c.Mprobe(p, tag); return err }},
		{"improbe", true, func(c *comm.Comm, p, tag int) error { _, _, _, err := c.Improbe(p, tag); return err }},
		{"send value", false, func(c *comm.Comm, p, tag int) error { return comm.SendValue(c, "v", p, tag) }},
		{"recv value", true, func(c *comm.Comm, p, tag int) error { _, _, err := comm.RecvValue[string](c, p, tag); return err }},
	}
}

// TestFirstWrongArgumentIsReported: arguments are checked in the order type, communicator, rank,
// tag, context. The error is about the first wrong one.
func TestFirstWrongArgumentIsReported(t *testing.T) {
	run(t, 2, func(t rank, w *comm.Comm) {
		freed := must(w.Dup())
		require.NoError(t, freed.Free())
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		view, plain := w.WithContext(ended), w
		for _, c := range append(typed(1), untyped()...) {
			fails := func(on *comm.Comm, peer, tag int, want error) {
				t.Helper()
				err := c.do(on, peer, tag)
				assert.ErrorIs(t, err, want, "%s(%d, %d)", c.op, peer, tag)
				var e *comm.Error
				if assert.ErrorAs(t, err, &e) {
					assert.Equal(t, c.op, e.Op)
					assert.Equal(t, on.Name(), e.Comm)
					if want != comm.ErrComm && want != context.Canceled || e.Peer == peer {
						assert.Equal(t, peer, e.Peer, c.op)
						assert.Equal(t, tag, e.Tag, c.op)
					}
				}
			}
			for _, on := range []*comm.Comm{nil, {}, freed} {
				fails(on, -7, -7, comm.ErrComm)
				fails(on, comm.ProcNull, 0, comm.ErrComm)
			}
			for _, on := range []*comm.Comm{plain, view} {
				for _, peer := range []int{2, -3, -7, 1 << 40} {
					fails(on, peer, -7, comm.ErrRank)
					fails(on, peer, 0, comm.ErrRank)
				}
				for _, peer := range []int{0, comm.ProcNull} {
					fails(on, peer, -7, comm.ErrTag)
					fails(on, peer, w.TagUB()+1, comm.ErrTag)
					fails(on, peer, 1<<40, comm.ErrTag)
					if !c.receive {
						fails(on, peer, comm.AnyTag, comm.ErrTag)
					}
				}
				if !c.receive {
					fails(on, comm.AnySource, 0, comm.ErrRank)
				}
			}
			fails(view, 0, 0, context.Canceled)
			fails(view, comm.ProcNull, 0, context.Canceled)
			assert.NoError(t, c.do(plain, comm.ProcNull, w.TagUB()), c.op)
		}
		for _, c := range typed("text") {
			for _, on := range []*comm.Comm{nil, freed, view, plain} {
				assert.ErrorIs(t, c.do(on, -7, -7), comm.ErrType, c.op)
			}
		}
	})
}

// TestSendrecvReportsRanksBeforeTags: the ranks of both halves are checked before the tags.
func TestSendrecvReportsRanksBeforeTags(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		for _, c := range []struct {
			dest, sendtag, source, recvtag int
			want                           error
			peer, tag                      int
		}{
			{7, 1, 8, 2, comm.ErrRank, 7, 1},
			{0, -5, 8, 2, comm.ErrRank, 8, 2},
			{0, -5, 0, -6, comm.ErrTag, 0, -5},
			{0, 5, comm.AnySource, -6, comm.ErrTag, comm.AnySource, -6},
		} {
			_, err := comm.Sendrecv(w, []int{1}, c.dest, c.sendtag, []int{1}, c.source, c.recvtag)
			isErrorOf(t, err, "sendrecv", c.peer, c.tag)
			assert.ErrorIs(t, err, c.want)
		}
		assert.ErrorIs(t, errOf(comm.Sendrecv(w, []int{1}, 0, 0, []string{""}, 0, 0)), comm.ErrType)
	})
}

func TestEmptySliceIsCheckedAndSent(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		assert.ErrorIs(t, comm.Send[int](w, nil, 3, 0), comm.ErrRank)
		assert.ErrorIs(t, comm.Send(w, []int{}, 0, -3), comm.ErrTag)
		require.NoError(t, comm.Send[int](w, nil, 0, 4))
		st := must(comm.Recv[int](w, nil, comm.AnySource, comm.AnyTag))
		assert.Equal(t, request.Status{Source: 0, Tag: 4}, st)
		require.NoError(t, comm.Send(w, make([]struct{}, 5), 0, 4))
		st = must(comm.Recv(w, make([]struct{}, 5), 0, 4))
		assert.Equal(t, request.Status{Source: 0, Tag: 4}, st)
	})
}

func TestErrorNamesCallPeerAndTag(t *testing.T) {
	run(t, 1, func(t rank, w *comm.Comm) {
		comm.EqualError(t, comm.Send(w, []int{1}, 5, 3),
			"world: send (peer 5, tag 3): invalid rank: 5 is not in 0…0")
		_, err := comm.Irecv(w, []int{1}, comm.AnySource, -9)
		comm.EqualError(t, err, "world: irecv (peer any, tag -9): invalid tag: -9 is not in 0…1073741823")
		_, err = comm.Recv(nil, []int{1}, 0, comm.AnyTag)
		comm.EqualError(t, err, "null: recv (peer 0, tag any): invalid communicator: it is nil")
		// Only receives take wildcards.
		comm.EqualError(t, comm.Send(w, []int{1}, -1, 0), "world: send (peer -1, tag 0): invalid rank: -1 is not in 0…0")
		comm.EqualError(t, comm.Send(w, []int{1}, 0, -1), "world: send (peer 0, tag -1): invalid tag: -1 is not in 0…1073741823")
		comm.EqualError(t, comm.Bcast(w, []int{1}, -1), "world: bcast (peer -1): invalid root: -1 is not in 0…0")
		_, err = comm.Sendrecv(w, []int{1}, -1, -1, []int{1}, comm.AnySource, comm.AnyTag)
		comm.EqualError(t, err, "world: sendrecv (peer -1, tag any): invalid rank: -1 is not in 0…0")
		_, err = comm.Sendrecv(w, []int{1}, 0, -1, []int{1}, comm.AnySource, comm.AnyTag)
		comm.EqualError(t, err, "world: sendrecv (peer 0, tag -1): invalid tag: -1 is not in 0…1073741823")
		_, err = comm.Recv(w, []int{1}, 7, comm.AnyTag)
		comm.EqualError(t, err, "world: recv (peer 7, tag any): invalid rank: 7 is not in 0…0")
		_, err = w.Probe(comm.AnySource, 1<<40)
		comm.EqualError(t, err, "world: probe (peer any, tag 1099511627776): invalid tag: 1099511627776 is not in 0…1073741823")
		// The error names the argument, although Undefined is the same number.
		comm.EqualError(t, comm.Send(w, []int{1}, -3, -3), "world: send (peer -3, tag -3): invalid rank: -3 is not in 0…0")
		_, err = comm.Irecv(w, []int{1}, 0, -3)
		comm.EqualError(t, err, "world: irecv (peer 0, tag -3): invalid tag: -3 is not in 0…1073741823")
		comm.EqualError(t, comm.Bcast(w, []int{1}, -3), "world: bcast (peer -3): invalid root: -3 is not in 0…0")
		// The same for the number that stands for none within the package.
		const least = math.MinInt64
		comm.EqualError(t, comm.Send(w, []int{1}, least, 3), "world: send (peer -9223372036854775808, tag 3): invalid rank: -9223372036854775808 is not in 0…0")
		_, err = comm.Recv(w, []int{1}, 0, least)
		comm.EqualError(t, err, "world: recv (peer 0, tag -9223372036854775808): invalid tag: -9223372036854775808 is not in 0…1073741823")
		comm.EqualError(t, comm.Bcast(w, []int{1}, least), "world: bcast (peer -9223372036854775808): invalid root: -9223372036854775808 is not in 0…0")
		var e *comm.Error
		require.ErrorAs(t, w.Free(), &e)
		assert.Equal(t, [2]int{comm.Undefined, comm.Undefined}, [2]int{e.Peer, e.Tag})
		w.SetName("grid")
		comm.EqualError(t, comm.Send(w, []string{"x"}, comm.ProcNull, 3),
			"grid: send (peer null, tag 3): invalid type string: it holds a pointer")
		comm.EqualError(t, w.Free(), "grid: free comm: invalid communicator: the world is not freed")
		assert.Equal(t, "grid", w.Name())
	})
}

// TestCallsOfNilCommFail: they return ErrComm and have no effect.
func TestCallsOfNilCommFail(t *testing.T) {
	for _, c := range []*comm.Comm{nil, {}} {
		assert.Equal(t, comm.Undefined, c.Rank())
		assert.Equal(t, 0, c.Size())
		assert.Equal(t, "null", c.Name())
		assert.GreaterOrEqual(t, c.TagUB(), 32767)
		assert.Equal(t, c, c.WithContext(context.Background()))
		assert.Zero(t, c.Wtime())
		c.SetName("x")
		assert.ErrorIs(t, errOf(c.Dup()), comm.ErrComm)
		assert.ErrorIs(t, errOf(c.Split(0, 0)), comm.ErrComm)
		assert.ErrorIs(t, errOf(c.SplitHost(0)), comm.ErrComm)
		assert.ErrorIs(t, c.Free(), comm.ErrComm)
		assert.ErrorIs(t, c.Finalize(), comm.ErrComm)
		assert.ErrorIs(t, errOf(comm.Alloc[int](c, 1)), comm.ErrComm)
		assert.ErrorIs(t, comm.FreeAlloc(c, []int{1}), comm.ErrComm)
	}
}

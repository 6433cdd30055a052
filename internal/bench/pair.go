package bench

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

const (
	tagData = 1
	tagLate = 2 // messages of a window whose receives are posted last
	tagDone = 3
	tags    = 4
)

// pair is the part of a rank that all benchmarks between two ranks share: its partner, and memory.
// Of n ranks, rank i < n/2 and rank i+n/2 are partners.
type pair struct {
	j          *job
	peer       int
	leads      bool // this rank sends first
	lane       int  // index of this goroutine among several of the rank
	send, recv *pool[byte]
	late       every
	turn       int  // counts messages, for communicators in turn
	varied     bool // buffers, communicators or the order of calls change from message to message
}

func newPair(j *job) (*pair, error) {
	rank, half := j.world.Rank(), j.world.Size()/2
	p := &pair{
		j: j, peer: (rank + half) % (2 * half), leads: rank < half,
		late:   every{percent: j.cfg.unexpected},
		varied: j.cfg.fresh || j.cfg.twoComms || j.cfg.unexpected > 0,
	}
	var err error
	p.send, p.recv, err = newPools[byte](j, j.largest(), j.largest())
	return p, err
}

func (p *pair) resize(bytes int) error {
	p.send.resize(bytes)
	p.recv.resize(bytes)
	return nil
}

func (p *pair) close() error { return errors.Join(p.send.free(), p.recv.free()) }

// tag returns a tag that no other goroutine uses.
func (p *pair) tag(kind int) int { return kind + p.lane*tags }

// next returns the communicator of the next message.
func (p *pair) next() *comm.Comm {
	p.turn++
	return p.j.comms[p.turn&1]
}

// fillMessages fills the buffers of the next n sends, and puts wrong data into the buffers of the
// next n receives.
func (p *pair) fillMessages(n, seed int) {
	p.send.mark()
	p.recv.mark()
	// Neither function returns an error.
	_ = p.send.sinceMark(n, func(b []byte) error {
		for i := range b {
			b[i] = datum(seed, p.j.world.Rank(), i)
		}
		return nil
	})
	_ = p.recv.sinceMark(n, func(b []byte) error {
		for i := range b {
			b[i] = ^datum(seed, p.peer, i)
		}
		return nil
	})
}

// checkMessages checks the n messages that arrived since fillMessages.
func (p *pair) checkMessages(n, seed int) error {
	return p.recv.sinceMark(n, func(b []byte) error {
		for i, got := range b {
			if want := datum(seed, p.peer, i); got != want {
				return fmt.Errorf("byte %d from rank %d is %d, not %d", i, p.peer, got, want)
			}
		}
		return nil
	})
}

// datum returns byte i of a rank's message. It is small, so sums of floats are exact.
func datum(seed, rank, i int) byte { return byte((i + i>>7 + 31*seed + 17*rank) & 0x7f) }

// every spreads a percentage evenly.
type every struct{ percent, sum int }

// due reports whether the next message belongs to the percentage.
func (e *every) due() bool {
	if e.sum += e.percent; e.sum < 100 {
		return false
	}
	e.sum -= 100
	return true
}

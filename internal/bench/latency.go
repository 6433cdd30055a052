package bench

import (
	"errors"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// pingPong sends a message back and forth.
type pingPong struct {
	*pair
	loop func(n int) error
}

func openPingPong(j *job) (exercise, error) {
	p, err := newPair(j)
	if err != nil {
		return nil, err
	}
	e := &pingPong{pair: p}
	e.loop = e.blocking
	if j.cfg.isend {
		e.loop = e.nonblocking
	}
	return e, nil
}

func openPersistent(j *job) (exercise, error) {
	p, err := newPair(j)
	if err != nil {
		return nil, err
	}
	e := &persistent{pingPong: pingPong{pair: p}}
	e.loop = e.rounds
	return e, nil
}

func (e *pingPong) run(n int) (time.Duration, error) {
	began := time.Now()
	err := e.loop(n)
	return time.Since(began), err
}

func (e *pingPong) fill(seed int)        { e.fillMessages(1, seed) }
func (e *pingPong) check(seed int) error { return e.checkMessages(1, seed) }

func (e *pingPong) blocking(n int) error {
	c, peer, out, in := e.j.world, e.peer, e.send.now, e.recv.now
	for range n {
		if e.varied {
			c, out, in = e.next(), e.send.take(), e.recv.take()
		}
		if e.leads {
			if err := comm.Send(c, out, peer, tagData); err != nil {
				return err
			}
		}
		if e.varied && e.late.due() {
			if _, err := c.Probe(peer, tagData); err != nil {
				return err
			}
		}
		if _, err := comm.Recv(c, in, peer, tagData); err != nil {
			return err
		}
		if !e.leads {
			if err := comm.Send(c, out, peer, tagData); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *pingPong) nonblocking(n int) error {
	c, peer, out, in := e.j.world, e.peer, e.send.now, e.recv.now
	for range n {
		if e.varied {
			c, out, in = e.next(), e.send.take(), e.recv.take()
		}
		if e.leads {
			if err := isendWait(c, out, peer); err != nil {
				return err
			}
		}
		if e.varied && e.late.due() {
			if _, err := c.Probe(peer, tagData); err != nil {
				return err
			}
		}
		r, err := comm.Irecv(c, in, peer, tagData)
		if err != nil {
			return err
		}
		if _, err := r.Wait(); err != nil {
			return err
		}
		if !e.leads {
			if err := isendWait(c, out, peer); err != nil {
				return err
			}
		}
	}
	return nil
}

func isendWait(c *comm.Comm, out []byte, peer int) error {
	s, err := comm.Isend(c, out, peer, tagData)
	if err != nil {
		return err
	}
	_, err = s.Wait()
	return err
}

// persistent is a pingPong by persistent requests, which each iteration starts again.
type persistent struct {
	pingPong
	sends, recvs request.Request
}

func (e *persistent) resize(bytes int) error {
	err := errors.Join(e.freeRequests(), e.pair.resize(bytes))
	if err != nil {
		return err
	}
	if e.sends, err = comm.SendInit(e.j.world, e.send.now, e.peer, tagData); err != nil {
		return err
	}
	e.recvs, err = comm.RecvInit(e.j.world, e.recv.now, e.peer, tagData)
	return err
}

func (e *persistent) close() error { return errors.Join(e.freeRequests(), e.pair.close()) }

func (e *persistent) freeRequests() error {
	if e.sends.IsNull() {
		return nil
	}
	return errors.Join(e.sends.Free(), e.recvs.Free())
}

func (e *persistent) rounds(n int) error {
	first, second := e.sends, e.recvs
	if !e.leads {
		first, second = second, first
	}
	for range n {
		if err := first.Start(); err != nil {
			return err
		}
		if _, err := first.Wait(); err != nil {
			return err
		}
		if err := second.Start(); err != nil {
			return err
		}
		if _, err := second.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// reportLatency returns half of the time of a round trip.
func reportLatency(_ *job, m measured) ([]float64, error) {
	return []float64{m.micros() / 2}, nil
}

// reportPairsLatency returns the mean over all ranks.
func reportPairsLatency(j *job, m measured) ([]float64, error) {
	sum := []float64{0}
	err := comm.Reduce(j.world, []float64{m.micros() / 2}, sum, comm.Sum, 0)
	return []float64{sum[0] / float64(j.world.Size())}, err
}

package bench

import (
	"errors"
	"sync"
	"time"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// windows sends a window of messages at a time.
type windows struct {
	*pair
	both         bool              // both ranks send, at once
	sends, recvs []request.Request // one for each message of a window
	done         []byte
}

func openOneWay(j *job) (exercise, error)   { return openWindows(j, false) }
func openBothWays(j *job) (exercise, error) { return openWindows(j, true) }

// openTeams opens one-way windows, by several goroutines of each rank at once with --goroutines.
func openTeams(j *job) (exercise, error) {
	if j.cfg.goroutines == 1 {
		return openOneWay(j)
	}
	e := new(teams)
	share := *j
	share.cfg.poolBytes /= j.cfg.goroutines // together they use as much memory as one would
	j = &share
	for lane := range j.cfg.goroutines {
		w, err := openWindows(j, false)
		if err != nil {
			return nil, errors.Join(err, e.close())
		}
		w.lane = lane
		e.all = append(e.all, w)
	}
	return e, nil
}

func openWindows(j *job, both bool) (*windows, error) {
	p, err := newPair(j)
	if err != nil {
		return nil, err
	}
	return &windows{
		pair: p, both: both, done: make([]byte, 4),
		sends: make([]request.Request, j.cfg.window),
		recvs: make([]request.Request, j.cfg.window),
	}, nil
}

func (e *windows) run(n int) (time.Duration, error) {
	began := time.Now()
	for range n {
		var err error
		switch {
		case e.both:
			err = e.exchange()
		case e.leads:
			err = e.sendWindow()
		default:
			err = e.recvWindow()
		}
		if err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}

// sendWindow is one iteration of the sender: a window of messages, and one answer.
func (e *windows) sendWindow() error {
	if err := e.isends(); err != nil {
		return err
	}
	if err := request.WaitAll(e.sends...); err != nil {
		return err
	}
	_, err := comm.Recv(e.j.world, e.done, e.peer, e.tag(tagDone))
	return err
}

func (e *windows) recvWindow() error {
	late, err := e.irecvs()
	if err == nil {
		err = e.irecvsLate(late)
	}
	if err == nil {
		err = request.WaitAll(e.recvs...)
	}
	if err != nil {
		return err
	}
	return comm.Send(e.j.world, e.done, e.peer, e.tag(tagDone))
}

func (e *windows) exchange() error {
	// Sender and receiver must agree on the late messages, so both count from the same state.
	turn, late := e.turn, e.late
	n, err := e.irecvs()
	if err != nil {
		return err
	}
	e.turn, e.late = turn, late
	if err := e.isends(); err != nil {
		return err
	}
	if err := e.irecvsLate(n); err != nil {
		return err
	}
	if err := request.WaitAll(e.sends...); err != nil {
		return err
	}
	return request.WaitAll(e.recvs...)
}

func (e *windows) isends() error {
	c, out, tag := e.j.world, e.send.now, e.tag(tagData)
	for k := range e.sends {
		if e.varied {
			c, out, tag = e.next(), e.send.take(), e.tag(tagData)
			if e.late.due() {
				c, tag = e.j.world, e.tag(tagLate)
			}
		}
		var err error
		if e.sends[k], err = comm.Isend(c, out, e.peer, tag); err != nil {
			return err
		}
	}
	return nil
}

// irecvs posts all receives of a window except the late ones, whose messages must arrive first. It
// returns the number of late ones.
func (e *windows) irecvs() (late int, err error) {
	c, in := e.j.world, e.recv.now
	posted := e.recvs[:0]
	for range e.recvs {
		if e.varied {
			if c = e.next(); e.late.due() {
				continue
			}
			in = e.recv.take()
		}
		r, err := comm.Irecv(c, in, e.peer, e.tag(tagData))
		if err != nil {
			return 0, err
		}
		posted = append(posted, r)
	}
	return len(e.recvs) - len(posted), nil
}

// irecvsLate posts each of the n receives that irecvs left out, once its message has arrived.
func (e *windows) irecvsLate(n int) error {
	for k := len(e.recvs) - n; k < len(e.recvs); k++ {
		if _, err := e.j.world.Probe(e.peer, e.tag(tagLate)); err != nil {
			return err
		}
		var err error
		if e.recvs[k], err = comm.Irecv(e.j.world, e.recv.take(), e.peer, e.tag(tagLate)); err != nil {
			return err
		}
	}
	return nil
}

func (e *windows) fill(seed int) { e.fillMessages(len(e.sends), seed+e.lane) }

func (e *windows) check(seed int) error {
	if e.leads && !e.both {
		return nil
	}
	return e.checkMessages(len(e.recvs), seed+e.lane)
}

// perSecond returns the rate of an event that happens n times in each iteration.
func (m measured) perSecond(n int) float64 {
	return float64(n) * float64(m.iterations) / m.elapsed.Seconds()
}

// micros returns the time of an iteration in microseconds.
func (m measured) micros() float64 { return m.perIteration(m.elapsed) }

// perIteration returns the time of one iteration in microseconds.
func (m measured) perIteration(all time.Duration) float64 {
	return float64(all.Nanoseconds()) / float64(m.iterations) / 1000
}

// teams runs windows by several goroutines at once. Each has a partner goroutine in the other rank.
type teams struct{ all []*windows }

func (e *teams) each(f func(w *windows) error) error {
	errs := make([]error, len(e.all))
	var running sync.WaitGroup
	for i, w := range e.all {
		running.Go(func() { errs[i] = f(w) })
	}
	running.Wait()
	return errors.Join(errs...)
}

func (e *teams) run(n int) (time.Duration, error) {
	began := time.Now()
	err := e.each(func(w *windows) error {
		_, err := w.run(n)
		return err
	})
	return time.Since(began), err
}

func (e *teams) resize(bytes int) error {
	return e.each(func(w *windows) error { return w.resize(bytes) })
}

func (e *teams) fill(seed int) {
	for _, w := range e.all {
		w.fill(seed)
	}
}

func (e *teams) check(seed int) error {
	return e.each(func(w *windows) error { return w.check(seed) })
}

func (e *teams) close() error {
	return e.each(func(w *windows) error { return w.close() })
}

func reportBandwidth(j *job, m measured) ([]float64, error) {
	return []float64{m.perSecond(j.cfg.window) * float64(m.bytes) / 1e6}, nil
}

func reportBothWays(j *job, m measured) ([]float64, error) {
	return []float64{2 * m.perSecond(j.cfg.window) * float64(m.bytes) / 1e6}, nil
}

// reportRate adds up the rates of all pairs, with the mean time of their senders.
func reportRate(j *job, m measured) ([]float64, error) {
	pairs := j.world.Size() / 2
	seconds, sum := []float64{0}, []float64{0}
	if j.world.Rank() < pairs {
		seconds[0] = m.elapsed.Seconds()
	}
	if err := comm.Reduce(j.world, seconds, sum, comm.Sum, 0); err != nil || j.world.Rank() != 0 {
		return nil, err
	}
	rate := float64(pairs) * float64(j.cfg.goroutines) * float64(m.iterations) * float64(j.cfg.window) / (sum[0] / float64(pairs))
	return []float64{rate * float64(m.bytes) / 1e6, rate}, nil
}

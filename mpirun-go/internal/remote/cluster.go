package remote

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/atomic"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Config is what Connect needs to know of a job and its hosts.
type Config struct {
	Agent   Agent
	Names   []string // of the hosts, as the user calls them, each once
	Secret  []byte
	JobID   string
	Timeout time.Duration // until a host has to have answered
	// Notice gets what agents say, a line at a time, from several goroutines. It does not wait.
	Notify func(host, line string)
}

// Cluster is the hosts of a job that are reached by an agent, each through its daemon.
type Cluster struct {
	cfg      Config
	self     Program
	hosts    []*Host
	branches []*branch
	running  sync.WaitGroup
	stop     chan struct{} // closed when all is over
	failed   chan error    // the first error before all hosts have answered
	welcomed chan struct{} // gets a value for each host that has answered

	mu      sync.Mutex // guards closing
	closing bool       // the ends of channels are as they should be

	limit   atomic.Int32  // endPulses of silence until a host is lost; 0: the job's end has not begun
	changed chan struct{} // gets a value, for which there is room, when limit has changed
}

// Connect starts the daemons of all hosts. The error is one line; if it is about a host, a *HostError. When ctx ends, so does the
// attempt, with the context's cause.
func Connect(ctx context.Context, cfg Config) (*Cluster, error) {
	if len(cfg.Names) > maxHosts {
		return nil, fmt.Errorf("%d hosts are more than %d", len(cfg.Names), maxHosts)
	}
	self, err := thisProgram()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		cfg: cfg, self: self, stop: make(chan struct{}),
		failed: make(chan error, 1), changed: make(chan struct{}, 1), welcomed: make(chan struct{}, len(cfg.Names)),
	}
	numbers := make([]int, len(cfg.Names))
	for i, name := range cfg.Names {
		numbers[i] = i
		c.hosts = append(c.hosts, newHost(c, uint16(i), name))
	}
	for _, child := range splitTree(numbers, cfg.Names) {
		b := newBranch(child)
		c.branches = append(c.branches, b)
		c.assignLink(child, b.link)
		c.running.Go(func() { c.runBranch(b) })
	}
	connected := make(chan struct{})
	c.running.Go(func() {
		c.watchConnect(connected)
		c.pingLoop()
	})
	for range c.hosts {
		select {
		case <-c.welcomed:
			continue
		case err = <-c.failed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		c.giveUp()
		return nil, err
	}
	close(connected)
	return c, nil
}

// Hosts are the hosts, in the order of their names.
func (c *Cluster) Hosts() []*Host { return c.hosts }

// take makes a branch's hosts reachable by its link, and greets the first one.
func (c *Cluster) assignLink(top child, link *link) {
	for _, number := range append([]int{top.host}, top.descendants...) {
		c.hosts[number].link = link
	}
	c.sendHello(top)
}

func (c *Cluster) sendHello(to child) {
	h := c.hosts[to.host]
	h.descendants = to.descendants
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	h.hello = hello{secret: string(c.cfg.Secret), nonce: string(nonce), job: c.cfg.JobID, name: h.name}
	h.post(kindHello, 0, 0, h.hello.encode())
	h.awaitingWelcome.Store(true)
}

// await ends the attempt to connect when a host does not answer. The agent has its time, and then the daemon.
func (c *Cluster) watchConnect(connected <-chan struct{}) {
	ticker := time.NewTicker(tickInterval(c.cfg.Timeout))
	defer ticker.Stop()
	for {
		select {
		case <-connected:
			return
		case <-c.stop:
			return
		case <-ticker.C:
		}
		for _, h := range c.hosts {
			if h.awaitingWelcome.Load() && h.welcomeTimer.tick(2) {
				c.fail(&HostError{Host: h.name, Why: fmt.Sprintf("did not answer within %v (twice --connect-timeout): its agent started something that is silent", 2*c.cfg.Timeout)})
			}
		}
	}
}

// fail ends the attempt to connect.
func (c *Cluster) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// run lives as long as a branch's channel.
func (c *Cluster) runBranch(b *branch) {
	top := c.hosts[b.host]
	notice := func(line string) { c.cfg.Notify(top.name, line) }
	take := func(f frame) error { return c.hosts[f.host].handle(f) }
	progress := func() { top.welcomeTimer.heard.Store(true) }
	b.run("", c.cfg.Agent, c.self, c.cfg.Timeout, c.stop, progress, notice, take, func(err error) { c.onLost(top, err) })
}

// lose deals with the end of a host's channel, which is that of those behind it too.
func (c *Cluster) onLost(h *Host, err error) {
	c.mu.Lock()
	closing := c.closing
	c.mu.Unlock()
	if closing {
		err = errors.New("the job is over")
	}
	failed := (*HostError)(nil)
	if errors.As(err, &failed) {
		c.fail(failed)
	} else {
		c.fail(&HostError{Host: h.name, Lost: err})
	}
	h.setLost(err)
	for _, number := range h.descendants {
		c.hosts[number].setLost(&parentLostError{h.name, err})
	}
}

// welcome deals with a host's first answer, and has it reach those behind it.
func (c *Cluster) onWelcome(h *Host, payload []byte) error {
	w, err := decodeWelcome(payload)
	switch {
	case err != nil:
		return err
	case !hmac.Equal(w.proof, proofOf(h.hello, h.number)):
		return errors.New("what answers does not know the job's secret")
	case h.Cores != nil || len(w.cores) == 0:
		return fmt.Errorf("%w: not a welcome", ErrProtocol)
	}
	h.awaitingWelcome.Store(false)
	h.Cores = w.cores
	if len(h.descendants) > 0 {
		a := connectRequest{agent: c.cfg.Agent, timeout: int(c.cfg.Timeout.Milliseconds()), children: splitTree(h.descendants, c.cfg.Names)}
		h.post(kindConnect, 0, 0, a.encode())
		for _, child := range a.children {
			c.sendHello(child)
		}
	}
	c.welcomed <- struct{}{} // has room
	return nil
}

// listen asks the hosts whether they are there.
func (c *Cluster) pingLoop() {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	every, limit := pingInterval, int32(maxMissedPings)
	for {
		select {
		case <-c.stop:
			return
		case <-c.changed:
			if limit = c.limit.Load(); every != endPingInterval {
				every = endPingInterval
				ticker.Reset(every)
				for _, h := range c.hosts {
					h.missedPings.Store(0) // what was counted until now were longer ones
				}
			}
		case <-ticker.C:
			for _, h := range c.hosts {
				h.missedPings.Add(1)
			}
		}
		c.pingAll(every, limit)
	}
}

// ask asks the hosts once, and loses those that have said nothing for more pulses than the limit.
func (c *Cluster) pingAll(every time.Duration, limit int32) {
	for _, h := range c.hosts {
		if h.missedPings.Load() > limit {
			c.onLost(h, &unresponsiveError{time.Duration(limit) * every})
		}
		h.post(kindPing, 0, 0, nil)
	}
}

// silentError is a procs.ErrSilent.
type unresponsiveError struct{ limit time.Duration }

func (e *unresponsiveError) Error() string { return fmt.Sprintf("it has not answered for %v", e.limit) }
func (e *unresponsiveError) Unwrap() error { return procs.ErrUnresponsive }

// Patience says that the job's end has begun: from now on, a host is lost that says nothing for so long. It can be shortened.
func (c *Cluster) SetSilenceLimit(limit time.Duration) {
	pulses := max(1, int32(limit/endPingInterval))
	for {
		old := c.limit.Load()
		if old != 0 && old <= pulses {
			return
		}
		if c.limit.CompareAndSwap(old, pulses) {
			break
		}
	}
	select {
	case c.changed <- struct{}{}:
	default: // it will be seen
	}
}

// abandon gives all hosts up. Their daemons see the end of their channels.
func (c *Cluster) giveUp() {
	c.setClosing()
	close(c.stop)
	for _, b := range c.branches {
		b.link.close()
	}
	c.waitForAgents()
}

// flushGrace is how long a launcher that is about to be stopped waits for what it has to say before.
const flushGrace = 500 * time.Millisecond

// Flush waits until all that the hosts were told is on its way, for a moment: one that does not listen does not hold up the others.
func (c *Cluster) Flush() {
	limit := time.Now().Add(flushGrace)
	for _, b := range c.branches {
		b.link.flush(time.Until(limit))
	}
}

func (c *Cluster) setClosing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
}

// closeGrace is how long daemons may take to end after a goodbye.
const closeGrace = 3 * time.Second

// Close dismisses the daemons, of whose ranks none is left, and waits for them to end.
func (c *Cluster) Close() {
	c.setClosing()
	for _, h := range slices.Backward(c.hosts) { // who passes on hears it last
		h.post(kindBye, 0, 0, nil)
	}
	for _, b := range c.branches {
		if c.hosts[b.host].isLost() { // it is not waited for
			b.link.close()
			b.killAgent()
			continue
		}
		b.link.finish()
	}
	close(c.stop)
	c.waitForAgents()
}

// end waits until all agents have ended, and ends those that do not.
func (c *Cluster) waitForAgents() {
	if waitTimeout(&c.running, closeGrace) {
		return
	}
	for _, b := range c.branches {
		b.link.close()
		b.killAgent()
	}
	c.running.Wait()
}

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

// Config describes the hosts of a job for Connect.
type Config struct {
	Agent   Agent
	Names   []string // the hosts' names as the user wrote them, each once
	Secret  []byte
	JobID   string
	Timeout time.Duration // the time within which a host must answer
	// Notify gets the agents' messages, a line at a time, from several goroutines. It must not
	// block.
	Notify func(host, line string)
}

// Cluster is the set of a job's hosts that are reached by an agent. A daemon runs on each of them.
type Cluster struct {
	cfg      Config
	self     Program
	hosts    []*Host
	branches []*branch
	running  sync.WaitGroup
	stop     chan struct{} // closed at the end
	failed   chan error    // the first error before all hosts are connected
	welcomed chan struct{} // gets a value for each connected host

	mu      sync.Mutex // guards closing
	closing bool       // channels end because the job is over

	// Missed pings, at endPingInterval, until a host is lost; 0: the job's end has not begun.
	limit   atomic.Int32
	changed chan struct{} // gets a value, without blocking, when limit has changed
}

// Connect starts a daemon on each host. Its error has one line, and is of type *HostError if a host
// is the reason. When ctx is done, Connect fails with the cause of ctx.
func Connect(ctx context.Context, cfg Config) (*Cluster, error) {
	if len(cfg.Names) > maxHosts {
		return nil, fmt.Errorf("%d hosts: a job has at most %d", len(cfg.Names), maxHosts)
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

// Hosts returns the hosts in the order of Config.Names.
func (c *Cluster) Hosts() []*Host { return c.hosts }

// assignLink assigns a branch's link to its hosts, and sends a hello to the first of them.
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

// watchConnect fails the connection if a host does not answer. A host has twice the timeout: one
// for its agent, and one for its daemon.
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
				c.fail(&HostError{Host: h.name, Problem: fmt.Sprintf("did not answer within %v (twice --connect-timeout): its agent runs, but its daemon is silent", 2*c.cfg.Timeout)})
			}
		}
	}
}

// fail makes Connect fail with err, unless it has failed already.
func (c *Cluster) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// runBranch serves a branch until its channel ends.
func (c *Cluster) runBranch(b *branch) {
	top := c.hosts[b.host]
	notice := func(line string) { c.cfg.Notify(top.name, line) }
	take := func(f frame) error { return c.hosts[f.host].handle(f) }
	progress := func() { top.welcomeTimer.alive.Store(true) }
	b.run("", c.cfg.Agent, c.self, c.cfg.Timeout, c.stop, progress, notice, take, func(err error) { c.onLost(top, err) })
}

// onLost handles the end of a host's channel, which is also the end of its descendants' channels.
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

// onWelcome handles a host's answer to the hello, and makes the host connect to its children.
func (c *Cluster) onWelcome(h *Host, payload []byte) error {
	w, err := decodeWelcome(payload)
	switch {
	case err != nil:
		return err
	case !hmac.Equal(w.proof, proofOf(h.hello, h.number)):
		return errors.New("the daemon's proof of the job's secret is wrong")
	case h.Cores != nil || len(w.cores) == 0:
		return fmt.Errorf("%w: unexpected welcome", ErrProtocol)
	}
	h.awaitingWelcome.Store(false)
	h.Cores, h.Quota = w.cores, w.quota
	if len(h.descendants) > 0 {
		a := connectRequest{agent: c.cfg.Agent, timeout: int(c.cfg.Timeout.Milliseconds()), children: splitTree(h.descendants, c.cfg.Names)}
		h.post(kindConnect, 0, 0, a.encode())
		for _, child := range a.children {
			c.sendHello(child)
		}
	}
	c.welcomed <- struct{}{} // never blocks: the channel has room for all hosts
	return nil
}

// pingLoop pings the hosts until the end.
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
					h.missedPings.Store(0) // the earlier count is of longer intervals
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

// pingAll pings each host once. A host that has missed more pings than limit is lost.
func (c *Cluster) pingAll(every time.Duration, limit int32) {
	for _, h := range c.hosts {
		if h.missedPings.Load() > limit {
			c.onLost(h, &unresponsiveError{time.Duration(limit) * every})
		}
		h.post(kindPing, 0, 0, nil)
	}
}

// unresponsiveError means that a host is lost because it does not answer. It wraps
// procs.ErrUnresponsive.
type unresponsiveError struct{ limit time.Duration }

func (e *unresponsiveError) Error() string { return fmt.Sprintf("it has not answered for %v", e.limit) }
func (e *unresponsiveError) Unwrap() error { return procs.ErrUnresponsive }

// SetSilenceLimit begins the job's end: from now on a host is lost if it is silent for the given
// time. A later call can only shorten the limit.
func (c *Cluster) SetSilenceLimit(limit time.Duration) {
	pings := max(1, int32(limit/endPingInterval))
	for {
		old := c.limit.Load()
		if old != 0 && old <= pings {
			return
		}
		if c.limit.CompareAndSwap(old, pings) {
			break
		}
	}
	select {
	case c.changed <- struct{}{}:
	default: // pingLoop has not read the last change yet, and will see this one
	}
}

// giveUp closes the channels to all hosts. Their daemons end at the end of their channels.
func (c *Cluster) giveUp() {
	c.setClosing()
	close(c.stop)
	for _, b := range c.branches {
		b.link.close()
	}
	c.waitForAgents()
}

// flushGrace bounds Flush. The launcher, which is about to stop by Ctrl-Z, waits for that time to
// send the signal to the hosts.
const flushGrace = 500 * time.Millisecond

// Flush waits for at most flushGrace until all queued frames have been written. A host that does
// not read does not delay the others' frames.
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

// closeGrace is the time that daemons have to end after kindBye.
const closeGrace = 3 * time.Second

// Close ends the daemons, none of which has a rank any more, and waits for their agents to exit.
func (c *Cluster) Close() {
	c.setClosing()
	// A host that forwards frames to others gets its own last.
	for _, h := range slices.Backward(c.hosts) {
		h.post(kindBye, 0, 0, nil)
	}
	for _, b := range c.branches {
		if c.hosts[b.host].isLost() { // do not wait for a lost host
			b.link.close()
			b.killAgent()
			continue
		}
		b.link.finish()
	}
	close(c.stop)
	c.waitForAgents()
}

// waitForAgents waits until all agents have exited, and after closeGrace kills those that have not.
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

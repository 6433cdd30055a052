package remote

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// branch is a host that is reached from here, and those that are reached through it.
type branch struct {
	child
	link *link

	mu    sync.Mutex    // guards process
	agent *agentProcess // nil before there is a channel
}

func newBranch(c child) *branch { return &branch{child: c, link: newLink()} }

// has is whether a host is of this branch.
func (b *branch) contains(host uint16) bool {
	return int(host) == b.host || slices.Contains(b.descendants, int(host))
}

// run reaches the host, as dial does, and gives what comes from there to take, until that or the channel ends with an error. It gives that to
// lost at once, and returns when the agent has ended. Progress is dial's.
func (b *branch) run(from string, agent Agent, self Program, timeout time.Duration, stop <-chan struct{}, progress func(), notice func(string), take func(frame) error, lost func(error)) {
	process, in, err := dial(from, agent, self, b.name, timeout, stop, progress)
	if err != nil {
		b.link.close()
		lost(err)
		return
	}
	b.mu.Lock()
	b.agent = process
	b.mu.Unlock()
	process.forwardStderr(notice)
	b.link.start(process.in)
	for {
		f, err := readFrame(in)
		if err == nil && !b.contains(f.host) {
			err = fmt.Errorf("%w: a frame of host %d", ErrProtocol, f.host)
		}
		if err == nil {
			err = take(f)
		}
		if err == nil {
			continue
		}
		b.link.close()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) {
			err = &channelClosedError{process}
		}
		lost(err)
		_ = process.exitText() // it has its time to end
		process.discard()
		return
	}
}

// endError is the end of a channel. How it came to that can be said a moment later: that is when Error returns.
type channelClosedError struct{ process *agentProcess }

func (e *channelClosedError) Error() string { return e.process.exitText() }

// behindError is the loss of a host that was reached by way of another one.
type parentLostError struct {
	via string
	err error
}

func (e *parentLostError) Error() string {
	return fmt.Sprintf("it was reached by way of %s, which was lost: %v", e.via, e.err)
}

func (e *parentLostError) Unwrap() error { return e.err }

// end ends the agent, whatever it does.
func (b *branch) killAgent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agent != nil {
		b.agent.kill()
	}
}

// fanOut is how many hosts are reached from one.
const fanOut = 16

// grow splits hosts into the branches of a tree: each of the first ones of a part is to reach the rest of it.
func splitTree(hosts []int, names []string) []child {
	var children []child
	parts := min(len(hosts), fanOut)
	for i := range parts {
		part := hosts[i*len(hosts)/parts : (i+1)*len(hosts)/parts]
		children = append(children, child{host: part[0], name: names[part[0]], descendants: part[1:]})
	}
	return children
}

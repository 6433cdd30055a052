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

// branch is a host that this process connects to by an agent, together with the hosts that are
// reached through it.
type branch struct {
	child
	link *link

	mu    sync.Mutex    // guards process
	agent *agentProcess // nil before the channel is open
}

func newBranch(c child) *branch { return &branch{child: c, link: newLink()} }

// contains reports whether a host belongs to this branch.
func (b *branch) contains(host uint16) bool {
	return int(host) == b.host || slices.Contains(b.descendants, int(host))
}

// run connects to the branch's host, as dial does, and passes each frame that arrives to take,
// until take or the channel fails. It passes that error to lost at once, and returns when the agent
// has exited. notice gets the agent's messages; progress is passed to dial.
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
		_ = process.exitText() // gives the agent time to exit by itself
		process.discard()
		return
	}
}

// channelClosedError means that a channel has ended. Error waits for the agent to exit, so that it
// can say how.
type channelClosedError struct{ process *agentProcess }

func (e *channelClosedError) Error() string { return e.process.exitText() }

// parentLostError means that a host is lost because the host through which it was reached is lost.
type parentLostError struct {
	via string
	err error
}

func (e *parentLostError) Error() string {
	return fmt.Sprintf("it was reached through %s, which was lost: %v", e.via, e.err)
}

func (e *parentLostError) Unwrap() error { return e.err }

// killAgent kills the agent, if it has started.
func (b *branch) killAgent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agent != nil {
		b.agent.kill()
	}
}

// fanOut is the largest number of hosts that one process connects to. It bounds the number of
// agents on a host; with it, two levels reach 272 hosts.
const fanOut = 16

// splitTree splits hosts into at most fanOut parts. The first host of each part is a child, through
// which the rest of the part is reached.
func splitTree(hosts []int, names []string) []child {
	var children []child
	parts := min(len(hosts), fanOut)
	for i := range parts {
		part := hosts[i*len(hosts)/parts : (i+1)*len(hosts)/parts]
		children = append(children, child{host: part[0], name: names[part[0]], descendants: part[1:]})
	}
	return children
}

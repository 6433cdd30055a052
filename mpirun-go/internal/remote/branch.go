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

	mu      sync.Mutex // guards process
	process *process   // nil before there is a channel
}

func newBranch(c child) *branch { return &branch{child: c, link: newLink()} }

// has is whether a host is of this branch.
func (b *branch) has(host uint16) bool {
	return int(host) == b.host || slices.Contains(b.through, int(host))
}

// run reaches the host, as dial does, and gives what comes from there to take, until that or the channel ends with an error. It gives that to
// lost at once, and returns when the agent has ended. Progress is dial's.
func (b *branch) run(from string, agent Agent, self *Self, timeout time.Duration, stop <-chan struct{}, progress func(), notice func(string), take func(frame) error, lost func(error)) {
	process, in, err := dial(from, agent, self, b.name, timeout, stop, progress)
	if err != nil {
		b.link.close()
		lost(err)
		return
	}
	b.mu.Lock()
	b.process = process
	b.mu.Unlock()
	process.passOn(notice)
	b.link.start(process.in)
	for {
		f, err := readFrame(in)
		if err == nil && !b.has(f.host) {
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
			err = &endError{process}
		}
		lost(err)
		_ = process.how() // it has its time to end
		process.discard()
		return
	}
}

// endError is the end of a channel. How it came to that can be said a moment later: that is when Error returns.
type endError struct{ process *process }

func (e *endError) Error() string { return e.process.how() }

// behindError is the loss of a host that was reached by way of another one.
type behindError struct {
	via string
	err error
}

func (e *behindError) Error() string {
	return fmt.Sprintf("it was reached by way of %s, which was lost: %v", e.via, e.err)
}

func (e *behindError) Unwrap() error { return e.err }

// end ends the agent, whatever it does.
func (b *branch) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		b.process.kill()
	}
}

// fanOut is how many hosts are reached from one.
const fanOut = 16

// grow splits hosts into the branches of a tree: each of the first ones of a part is to reach the rest of it.
func grow(hosts []int, names []string) []child {
	var children []child
	parts := min(len(hosts), fanOut)
	for i := range parts {
		part := hosts[i*len(hosts)/parts : (i+1)*len(hosts)/parts]
		children = append(children, child{host: part[0], name: names[part[0]], through: part[1:]})
	}
	return children
}

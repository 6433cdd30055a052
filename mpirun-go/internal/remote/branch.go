package remote

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// branch is a host that is reached from here, and those that are reached through it.
type branch struct {
	child
	link *link

	mu      sync.Mutex
	process *process // nil before there is a channel
}

func newBranch(c child) *branch { return &branch{child: c, link: newLink()} }

// has is whether a host is of this branch.
func (b *branch) has(host uint16) bool {
	return int(host) == b.host || slices.Contains(b.through, int(host))
}

// run reaches the host, and gives what comes from there to take, until that or the channel ends with an error,
// which says why.
func (b *branch) run(agent Agent, self *Self, timeout time.Duration, stop <-chan struct{}, notice func(string), take func(frame) error) error {
	process, in, out, err := dial(agent, self, b.name, timeout, stop)
	if err != nil {
		b.link.close()
		return err
	}
	b.mu.Lock()
	b.process = process
	b.mu.Unlock()
	process.passOn(notice)
	b.link.start(out)
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
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New(process.how())
		}
		process.kill() // if it has not ended
		<-process.exited
		return err
	}
}

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

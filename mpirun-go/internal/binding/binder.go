package binding

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// Binder binds the ranks of a job on this host. It keeps its claims until Close, or until this
// process ends. It is safe for concurrent use.
type Binder struct {
	machine func() slots.Machine
	node    func(cpu int) int
	taken   func(own []int) map[int]bool
	claim   func(cpu int) (claim, bool)

	mu     sync.Mutex
	ready  bool
	shares [][]int // nil: the ranks are not bound
	reason string  // why they are not
	claims []claim
}

// claim is a claim to a core. No other launcher gets a claim to it.
type claim interface{ release() }

// New returns a Binder that has claimed nothing yet.
func New() *Binder {
	return &Binder{machine: slots.ThisMachine, node: nodeOf, taken: takenProcessors, claim: claimCore}
}

// Share returns the processors of one of the host's ranks, of which there are the given number. nil
// means that it is not bound, for the reason. The first call decides for all ranks of the host.
func (b *Binder) Share(rank, ranks int) (cpus []int, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ready {
		b.ready = true
		b.shares, b.reason = b.decide(ranks)
	}
	if rank < 0 || rank >= len(b.shares) {
		return nil, b.reason
	}
	return b.shares[rank], ""
}

// decide claims the free cores, and divides them among the ranks. A rank that has the host for
// itself is not bound: its share would be all cores, and the next job would find none.
func (b *Binder) decide(ranks int) ([][]int, string) {
	m := b.machine()
	switch {
	case ranks == 1:
		return nil, "it is the host's only rank of the job"
	case m.Quota > 0:
		return nil, "a CPU quota limits this control group, and others may use its processors"
	case len(m.Cores) < ranks:
		return nil, fmt.Sprintf("%s for %d ranks", slots.Plural(len(m.Cores), "core"), ranks)
	}
	taken := b.taken(slices.Concat(m.Cores...))
	claims := map[int]claim{}
	var free []Core
	for _, cpus := range m.Cores {
		if anyOf(cpus, taken) {
			continue
		}
		if c, ok := b.claim(cpus[0]); ok {
			claims[cpus[0]] = c
			free = append(free, Core{CPUs: cpus, Node: b.node(cpus[0])})
		}
	}
	shares := Divide(free, ranks)
	for _, share := range shares {
		for _, cpu := range share {
			if c := claims[cpu]; c != nil {
				b.claims = append(b.claims, c)
				delete(claims, cpu)
			}
		}
	}
	for _, c := range claims {
		c.release()
	}
	if shares == nil {
		return nil, fmt.Sprintf("%d of %s are free, for %d ranks", len(free), slots.Plural(len(m.Cores), "core"), ranks)
	}
	return shares, ""
}

func anyOf(cpus []int, set map[int]bool) bool {
	for _, cpu := range cpus {
		if set[cpu] {
			return true
		}
	}
	return false
}

// Close gives up the claims. The ranks must have ended.
func (b *Binder) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.claims {
		c.release()
	}
	b.claims = nil
}

// nodeOf returns the number of the NUMA node of a processor, or -1. The processor's folder has a
// link named after the node.
func nodeOf(cpu int) int {
	names, _ := filepath.Glob(fmt.Sprintf("/sys/devices/system/cpu/cpu%d/node*", cpu))
	for _, name := range names {
		if n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(name), "node")); err == nil {
			return n
		}
	}
	return -1
}

// readStat returns the text of /proc/stat, or "".
func readStat() string {
	text, _ := os.ReadFile("/proc/stat")
	return string(text)
}

// Package binding decides to which processors the ranks of a host are bound by --bind-to auto.
//
// The policy (Divide) is a pure function. The mechanism finds out which cores are free: those that
// this process may use, that no other launcher has claimed (claim_linux.go), and to which no other
// process is bound (bound.go). A rank that shares its core with another bound process waits for a
// time slice with each message, so no binding is better than one to a core that is not free.
package binding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Core is a core of this machine.
type Core struct {
	CPUs []int // its processors that this process may use, at least one
	Node int   // its NUMA node; cores of an unknown node have the same number
}

// Divide divides free cores into an equal share for each rank, and returns the processors of each
// share. It leaves a remainder of cores unused. It returns nil if there are fewer cores than ranks.
// The cores of a share are neighbours, and of one NUMA node as long as the nodes have room.
func Divide(free []Core, ranks int) [][]int {
	if ranks < 1 || len(free) < ranks {
		return nil
	}
	size := len(free) / ranks
	free = slices.Clone(free)
	slices.SortStableFunc(free, func(a, b Core) int { return a.Node - b.Node })
	var shares [][]int
	var rest []Core
	for len(free) > 0 {
		// The next cores of one node, at most a share.
		n := 1
		for n < size && n < len(free) && free[n].Node == free[0].Node {
			n++
		}
		if n == size && len(shares) < ranks {
			shares = append(shares, processors(free[:n]))
		} else {
			rest = append(rest, free[:n]...)
		}
		free = free[n:]
	}
	for len(shares) < ranks {
		shares = append(shares, processors(rest[:size]))
		rest = rest[size:]
	}
	return shares
}

func processors(cores []Core) []int {
	var cpus []int
	for _, c := range cores {
		cpus = append(cpus, c.CPUs...)
	}
	slices.Sort(cpus)
	return cpus
}

// List writes the numbers of processors in the kernel's form, 0-3,8. They are in ascending order.
func List(cpus []int) string {
	var parts []string
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		part := strconv.Itoa(cpus[i])
		if end > i {
			part = fmt.Sprintf("%d-%d", cpus[i], cpus[end])
		}
		parts = append(parts, part)
		i = end + 1
	}
	return strings.Join(parts, ",")
}

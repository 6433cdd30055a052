package comm

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/calls"
)

// SplitKind says which part of a machine the ranks of a communicator from SplitBy share.
type SplitKind int

const (
	// SplitNode: the machine, as for SplitHost.
	SplitNode SplitKind = iota
	// SplitNUMA: the memory that is nearest to their cores.
	SplitNUMA
	// SplitSocket: the processor chip.
	SplitSocket
	// SplitCore: the core. Hardware threads of a core are one core.
	SplitCore
)

// splitSuffixes name the communicators, by kind.
var splitSuffixes = [...]string{SplitNode: "node", SplitNUMA: "numa", SplitSocket: "socket", SplitCore: "core"}

// SplitBy is Split with a colour for each part of a machine (MPI 4.1, section 7.4.2,
// MPI_Comm_split_type). A rank belongs to the part that contains all cores on which it may run: see
// mpirun-go's --bind-to. All ranks of a machine that may run on several parts, or whose part is
// unknown, get one communicator. Errors: ErrCount if there is no such kind, or if ranks pass
// different kinds; otherwise as for Split.
func (c *Comm) SplitBy(kind SplitKind, key int) (*Comm, error) {
	d := derivation{
		op: calls.SplitBy, me: splitMember{key: key, byHost: true, digest: digestOf(int(kind))}, check: sameDigest("kinds"),
	}
	if kind < SplitNode || kind > SplitCore {
		d.refused = fmt.Errorf("%w: split kind %d", ErrCount, int(kind))
	} else {
		d.suffix = splitSuffixes[kind]
		d.me.color = placeOf(os.DirFS("/sys/devices/system/cpu"), allowedCPUs(), kind)
	}
	return c.derive(d)
}

// allowedCPUs lists the processors on which this process may run. It is empty if they are not
// known.
func allowedCPUs() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var cpus []int
	for cpu, left := 0, set.Count(); left > 0; cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
			left--
		}
	}
	return cpus
}

// placeOf returns a number above 0 for the part of the machine that contains all of the processors.
// It is 0 if they are on several parts, or if the part is unknown. sys is /sys/devices/system/cpu.
func placeOf(sys fs.FS, cpus []int, kind SplitKind) int {
	place := 0
	for i, cpu := range cpus {
		p := partOf(sys, "cpu"+strconv.Itoa(cpu), kind) + 1
		if i > 0 && p != place {
			return 0
		}
		place = p
	}
	return place
}

// partOf returns the number of the part that contains a processor, or −1. cpu is the processor's
// folder.
func partOf(sys fs.FS, cpu string, kind SplitKind) int {
	switch kind {
	case SplitNUMA:
		return nodeOf(sys, cpu)
	case SplitSocket:
		return numberIn(sys, cpu+"/topology/physical_package_id")
	case SplitCore:
		// Cores are numbered within their socket.
		socket, core := partOf(sys, cpu, SplitSocket), numberIn(sys, cpu+"/topology/core_id")
		if socket < 0 || core < 0 {
			return -1
		}
		return socket<<31 | core
	}
	return -1
}

// nodeOf returns the number of the NUMA node of a processor, or −1. The processor's folder has a
// link named after the node.
func nodeOf(sys fs.FS, cpu string) int {
	entries, err := fs.ReadDir(sys, cpu)
	if err != nil {
		return -1
	}
	for _, e := range entries {
		if number, isNode := strings.CutPrefix(e.Name(), "node"); isNode {
			if n, err := strconv.ParseUint(number, 10, 31); err == nil {
				return int(n)
			}
		}
	}
	return -1
}

// numberIn returns the number in a file, or −1. The kernel writes −1 for a number that it does not
// know.
func numberIn(sys fs.FS, file string) int {
	b, err := fs.ReadFile(sys, file)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

package slots

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/internal/cgroup"
)

// ThisMachine describes this machine. It cannot fail: for a property that the system does not
// report it returns a safe value (one processor, the name localhost).
func ThisMachine() Machine {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost"
	}
	m := Machine{Name: name, Cores: cores(allowedCPUs(), "/sys/devices/system/cpu"), Addrs: ownAddrs()}
	if n := cgroup.CPUs("/", m.Processors()); n < m.Processors() {
		m.Quota = n
	}
	return m
}

// ownAddrs returns the addresses of this machine's interfaces except link-local ones, which may be
// another machine's on another link.
func ownAddrs() []netip.Addr {
	nets, _ := net.InterfaceAddrs()
	var addrs []netip.Addr
	for _, n := range nets {
		prefix, err := netip.ParsePrefix(n.String())
		if addr := prefix.Addr().Unmap(); err == nil && !addr.IsLinkLocalUnicast() {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// allowedCPUs returns the processors that this process may run on. In a container or under taskset
// these are fewer than the machine has.
func allowedCPUs() []int {
	var set unix.CPUSet
	var cpus []int
	if err := unix.SchedGetaffinity(0, &set); err == nil {
		for cpu := range len(set) * 64 {
			if set.IsSet(cpu) {
				cpus = append(cpus, cpu)
			}
		}
	}
	if len(cpus) == 0 {
		return []int{0}
	}
	return cpus
}

// cores groups processors by core, according to the sysfs directory dir. A processor that sysfs
// does not describe is a core by itself.
func cores(cpus []int, dir string) [][]int {
	var grouped [][]int
	taken := map[int]bool{}
	for _, cpu := range cpus {
		if taken[cpu] {
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, fmt.Sprintf("cpu%d/topology/thread_siblings_list", cpu)))
		core := []int{cpu}
		for _, sibling := range ParseCPUList(string(text)) {
			if sibling != cpu && slices.Contains(cpus, sibling) && !taken[sibling] {
				core = append(core, sibling)
			}
		}
		for _, c := range core {
			taken[c] = true
		}
		grouped = append(grouped, core)
	}
	return grouped
}

// ParseCPUList parses the kernel's form "0-3,8". It skips invalid parts.
func ParseCPUList(text string) []int {
	var cpus []int
	for _, part := range strings.Split(strings.TrimSpace(text), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || from < 0 || to < from || to-from >= 1<<16 {
			continue
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

package binding

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// initialPIDNamespace is the name of the PID namespace in which a process sees all others: the
// kernel's PROC_PID_INIT_INO.
const initialPIDNamespace = "pid:[4026531836]"

// takenProcessors returns the processors that others use and cannot leave. A process that may run
// elsewhere takes none, even if it is busy: the kernel moves it away from a rank that spins. In a
// container, where the processes of others are not visible, busy processors count as taken.
func takenProcessors(own []int) map[int]bool {
	names, _ := filepath.Glob("/proc/[0-9]*/status")
	var statuses []string
	for _, name := range names {
		text, _ := os.ReadFile(name) // the process may have ended
		statuses = append(statuses, string(text))
	}
	taken := boundTo(statuses, own)
	if namespace, _ := os.Readlink("/proc/self/ns/pid"); namespace != initialPIDNamespace {
		for cpu := range busyProcessors() {
			taken[cpu] = true
		}
	}
	return taken
}

// boundTo returns the processors to which processes are bound that may use some of own, but not
// all. Statuses are texts of /proc/PID/status (proc_pid_status(5)). Kernel threads, many of which
// are bound to a processor, have no memory and do not count.
func boundTo(statuses []string, own []int) map[int]bool {
	bound := map[int]bool{}
	for _, status := range statuses {
		_, rest, found := strings.Cut(status, "\nCpus_allowed_list:")
		if !found || !strings.Contains(status, "\nVmSize:") {
			continue
		}
		list, _, _ := strings.Cut(rest, "\n")
		allowed := map[int]bool{}
		for _, cpu := range slots.ParseCPUList(list) {
			allowed[cpu] = true
		}
		var shared []int
		for _, cpu := range own {
			if allowed[cpu] {
				shared = append(shared, cpu)
			}
		}
		if len(shared) == len(own) {
			continue
		}
		for _, cpu := range shared {
			bound[cpu] = true
		}
	}
	return bound
}

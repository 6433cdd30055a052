package job

import (
	"fmt"

	"github.com/mpigo/mpigo/mpirun-go/internal/binding"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// reportBindings prints the processors of each rank that is bound, and a line for each host with
// ranks that are not.
func (r *run) reportBindings() {
	for i, h := range r.cfg.Hosts {
		unbound, reason := 0, ""
		for _, k := range r.ranks {
			switch {
			case k.host != i:
			case k.CPUs != nil:
				r.printLine(fmt.Sprintf("rank %d on %s is bound to %s %s", k.Rank, h.Name(), processors(k.CPUs), binding.List(k.CPUs)))
			default:
				unbound++
				reason = k.Unbound
			}
		}
		if unbound == 0 {
			continue
		}
		line := fmt.Sprintf("%s on %s: not bound", slots.Plural(unbound, "rank"), h.Name())
		if reason != "" {
			line += ": " + reason
		}
		r.printLine(line)
	}
}

func processors(cpus []int) string {
	if len(cpus) == 1 {
		return "processor"
	}
	return "processors"
}

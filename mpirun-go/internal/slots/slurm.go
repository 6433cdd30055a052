package slots

import (
	"fmt"
	"strings"
)

// Slurm returns the hosts of a Slurm allocation. Its arguments are the values of
// SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE and SLURM_JOB_CPUS_PER_NODE. The slots come from tasks,
// or from cpus if tasks is empty. If both are empty, each host has as many slots as processors.
func Slurm(nodes, tasks, cpus string) ([]Host, error) {
	words, err := splitList(nodes)
	if err != nil {
		return nil, fmt.Errorf("SLURM_JOB_NODELIST=%.100q: %w", nodes, err)
	}
	var hosts []Host
	for _, word := range words {
		names, err := Expand(word)
		if err != nil {
			return nil, fmt.Errorf("SLURM_JOB_NODELIST: %w", err)
		}
		for _, name := range names {
			hosts = append(hosts, Host{Name: name, Unnumbered: 1})
		}
		if len(hosts) > MaxHosts {
			return nil, fmt.Errorf("SLURM_JOB_NODELIST: %w", errTooManyHosts)
		}
	}
	variable, counts := "SLURM_TASKS_PER_NODE", tasks
	if counts == "" {
		variable, counts = "SLURM_JOB_CPUS_PER_NODE", cpus
	}
	if counts == "" {
		return hosts, nil
	}
	numbers, err := parsePerNode(counts)
	if err != nil {
		return nil, fmt.Errorf("%s=%.100q: %w", variable, counts, err)
	}
	if len(numbers) != len(hosts) {
		return nil, fmt.Errorf("%s=%.100q describes %s, but SLURM_JOB_NODELIST=%.100q names %d", variable, counts, Plural(len(numbers), "node"), nodes, len(hosts))
	}
	for i, n := range numbers {
		hosts[i].Slots, hosts[i].Unnumbered = n, 0
	}
	return hosts, nil
}

// parsePerNode parses Slurm's short form of one number per node: 4(x2),1.
func parsePerNode(text string) ([]int, error) {
	var all []int
	for _, part := range strings.Split(text, ",") {
		number, times, repeated := strings.Cut(part, "(x")
		n, err := parseSlots(number)
		count := 1
		if repeated && err == nil {
			var closed bool
			if times, closed = strings.CutSuffix(times, ")"); !closed {
				return nil, fmt.Errorf("%q is not a number such as 4(x2)", part)
			}
			count, err = parseNumber(times)
		}
		if err != nil || count < 1 {
			return nil, fmt.Errorf("%q is not a number such as 4(x2)", part)
		}
		if count > MaxHosts || len(all)+count > MaxHosts {
			return nil, errTooManyHosts
		}
		for range count {
			all = append(all, n)
		}
	}
	return all, nil
}

package comm

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// tell says on standard error, if that is wanted, how the other ranks are reached.
func (r *rails) tell() {
	if r.job.settings.Bool("verbose") {
		fmt.Fprintf(os.Stderr, "mpigo: rank %d: %s\n", r.job.rank, r.reach())
		for _, transport := range r.allowed {
			for _, why := range r.refused[transport] {
				fmt.Fprintf(os.Stderr, "mpigo: rank %d: left out: %s\n", r.job.rank, oneLine(why))
			}
		}
		if r.has("tcp") && r.firstHere() {
			for _, line := range strangeWords(r.job.settings) {
				fmt.Fprintf(os.Stderr, "mpigo: rank %d: %s\n", r.job.rank, line)
			}
		}
	}
}

// reach is what leads to whom, as the cards say: "sm to 1-3; ibverbs(rxe0/1,rxe1/1) to 4".
func (r *rails) reach() string {
	var order []string
	reached := map[string][]int{}
	for peer := range r.job.size {
		if peer == r.job.rank {
			continue
		}
		by := r.by(peer)
		if reached[by] == nil {
			order = append(order, by)
		}
		reached[by] = append(reached[by], peer)
	}
	if len(order) == 0 {
		return "there are no other ranks"
	}
	for i, by := range order {
		order[i] = by + " to " + ranges(reached[by])
	}
	return strings.Join(order, "; ")
}

// by is what leads to a peer.
func (r *rails) by(peer int) string {
	var all []string
	routes := 0
	for _, transport := range r.allowed {
		if enough(routes) {
			break
		}
		ways := r.waysTo(peer, transport)
		if len(ways) == 0 {
			continue
		}
		routes += len(ways)
		var ports []string
		for _, w := range ways {
			if port := r.list[w.local].port; port != "" {
				ports = append(ports, port)
			}
		}
		if len(ports) > 0 {
			transport += "(" + strings.Join(ports, ",") + ")"
		}
		all = append(all, transport)
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, "+")
}

// ranges writes numbers that rise: "1-3,5".
func ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(numbers[i]))
		if last > i {
			b.WriteString("-" + strconv.Itoa(numbers[last]))
		}
		i = last + 1
	}
	return b.String()
}

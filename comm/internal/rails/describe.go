package rails

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/btl/transport"
)

// Describe logs how this rank reaches the others, and the first rank of a machine why it does not
// use the other transports, if the tunable verbose is set. It reads only what the start has fixed,
// so the caller need not hold the lock.
func (r *Rails) Describe() {
	if !r.settings().Bool("verbose") {
		return
	}
	r.cfg.Log.Log(slog.LevelInfo, r.reach())
	if len(r.lowerHere()) == 0 { // it is the same at the ranks of a machine
		for _, why := range r.whyUnused() {
			r.cfg.Log.Log(slog.LevelInfo, why)
		}
	}
	for _, t := range r.allowed {
		for _, why := range r.whyLeftOut(t.Name) {
			r.cfg.Log.Log(slog.LevelInfo, "left out: "+why)
		}
	}
	for _, t := range r.allowed {
		if t.Unknown == nil || !r.has(t.Name) || len(r.lowerHere()) > 0 {
			continue
		}
		for _, line := range t.Unknown(r.settings()) {
			r.cfg.Log.Log(slog.LevelInfo, line)
		}
	}
}

// reach lists which rails lead to which ranks: "sm to 1-3; ibverbs(rxe0/1,rxe1/1) to 4".
func (r *Rails) reach() string {
	var order []string
	reached := map[string][]int{}
	for peer := range r.cfg.Env.Size {
		if peer == r.cfg.Env.Rank {
			continue
		}
		by := r.railsTo(peer)
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

// railsTo names the transport that leads to a peer, and its ports: "ibverbs(rxe0/1)".
func (r *Rails) railsTo(peer int) string {
	for _, t := range r.allowed {
		ways := slices.DeleteFunc(r.waysTo(peer, t), func(w transport.Pair) bool { return w.Level > 0 })
		if len(ways) == 0 {
			continue
		}
		var ports []string
		var locals []int
		count := map[string]int{} // rails of a port
		for _, w := range ways {
			port := r.list[w.Local].port
			if port == "" || r.absent(w.Local) != nil || slices.Contains(locals, w.Local) {
				continue
			}
			locals = append(locals, w.Local)
			if count[port]++; count[port] == 1 {
				ports = append(ports, port)
			}
		}
		for i, port := range ports {
			if n := count[port]; n > 1 {
				ports[i] = fmt.Sprintf("%s x%d", port, n)
			}
		}
		if len(ports) == 0 {
			return t.Name
		}
		return t.Name + "(" + strings.Join(ports, ",") + ")"
	}
	return "nothing"
}

// ranges writes rising numbers: "1-3,5".
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

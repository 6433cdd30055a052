package rails

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/userlog"
)

// whyUnused says which built-in transports do not carry this rank's messages to some other ranks at
// first, and why, in a line for each transport: "ibverbs not to 1-3: built without cgo".
func (r *Rails) whyUnused() (lines []string) {
	used := make([]string, r.cfg.Env.Size) // the first transport that leads to each peer
	for peer := range used {
		if peer == r.cfg.Env.Rank {
			continue
		}
		for _, t := range r.allowed {
			if r.leads(peer, t) {
				used[peer] = t.Name
				break
			}
		}
	}
	for _, t := range r.cfg.Transports {
		if t.Reach == transport.Itself {
			continue
		}
		var order []string
		peers := map[string][]int{}
		for peer, name := range used {
			if peer == r.cfg.Env.Rank || name == t.Name {
				continue
			}
			why := r.whyNotTo(peer, t, name)
			if peers[why] == nil {
				order = append(order, why)
			}
			peers[why] = append(peers[why], peer)
		}
		for i, why := range order {
			order[i] = fmt.Sprintf("to %s: %s", ranges(peers[why]), why)
		}
		if len(order) > 0 {
			lines = append(lines, t.Name+" not "+strings.Join(order, "; "))
		}
	}
	return lines
}

// leads reports whether a transport leads to a peer at first.
func (r *Rails) leads(peer int, t transport.Transport) bool {
	return slices.ContainsFunc(r.waysTo(peer, t), func(w transport.Pair) bool { return w.Level == 0 })
}

// whyNotTo is why a transport does not carry messages to a peer at first. used is the name of the
// one that does, or "".
func (r *Rails) whyNotTo(peer int, t transport.Transport, used string) string {
	if !slices.ContainsFunc(r.allowed, func(a transport.Transport) bool { return a.Name == t.Name }) {
		return "not in btl=" + r.allowedNames()
	}
	if i := slices.IndexFunc(r.missing, func(m missing) bool { return m.transport.Name == t.Name }); i >= 0 {
		why := userlog.OneLine(r.missing[i].why)
		for _, prefix := range []string{"rail ", t.Name, ": "} { // the line begins with the name
			why = strings.TrimPrefix(why, prefix)
		}
		return why
	}
	switch {
	case r.leads(peer, t):
		return "spare, because " + used + " is before it in btl=" + r.allowedNames()
	case !r.has(t.Name):
		return "not needed, because " + used + " leads to all ranks"
	case t.Reach == transport.Host && r.cards[peer].Host != r.cfg.Host:
		return "on another host"
	}
	_, ours := r.modulesOf(t.Name)
	_, theirs := modulesOf(r.cards[peer], t.Name)
	switch {
	case len(theirs) == 0:
		return "not there on " + hostName(r.cards[peer])
	case t.Explain != nil:
		return t.Explain(ours, theirs)
	}
	return "none here leads to one there"
}

// Package slots decides where ranks run: which hosts there are, how many slots
// each has, and which rank gets which slot and which processors.
package slots

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Host is a place where ranks are started, as the user asked for it.
type Host struct {
	Name       string
	Slots      int // ranks that it has room for
	Unnumbered int // times that it was named without a number: each is as many slots more as it has processors
	Max        int // more ranks than this it does not get; 0: as many as there are
	Local      bool
}

// Room is how many slots a host with so many processors has.
func (h Host) SlotCount(cpus int) int { return h.Slots + h.Unnumbered*cpus }

// Total is how many slots there are, if that is known of all hosts without asking for processors.
func TotalSlots(hosts []Host) (n int, known bool) {
	for _, h := range hosts {
		if h.Unnumbered > 0 {
			return 0, false
		}
		n += h.Slots
	}
	return n, true
}

// Machine is what the mapping has to know about a host.
type Machine struct {
	Name  string
	Cores [][]int      // the processors of each core that this process may use
	Addrs []netip.Addr // of its interfaces, save for those that count on one link only
}

// CPUs is the number of processors that this process may use.
func (m Machine) CPUs() int {
	n := 0
	for _, core := range m.Cores {
		n += len(core)
	}
	return n
}

// Merge adds up what is asked for of the same host, in the order in which hosts are first named. Capital letters make no difference. All of this machine's
// names and addresses are one host, unless only the names count. Without any request it is this machine, with a slot for each processor.
func Merge(m Machine, requests []Host, onlyNames bool) []Host {
	var hosts []Host
	for _, r := range requests {
		if r.Local = !onlyNames && m.hasName(r.Name); r.Local {
			r.Name = m.Name
		}
		i := slices.IndexFunc(hosts, func(h Host) bool { return sameName(h.Name, r.Name) })
		if i < 0 {
			hosts = append(hosts, r)
			continue
		}
		h := &hosts[i]
		h.Slots += r.Slots
		h.Unnumbered += r.Unnumbered
		if h.Max == 0 || r.Max == 0 {
			h.Max = 0
		} else {
			h.Max += r.Max
		}
	}
	if len(hosts) == 0 {
		return []Host{{Name: m.Name, Unnumbered: 1, Local: true}}
	}
	return hosts
}

// AllHere is whether no host but this machine is named.
func AllLocal(m Machine, requests []Host) bool {
	return !slices.ContainsFunc(requests, func(h Host) bool { return !m.hasName(h.Name) })
}

func (m Machine) hasName(name string) bool {
	short := func(s string) string {
		first, _, _ := strings.Cut(s, ".")
		return first
	}
	if addr, err := netip.ParseAddr(name); err == nil && slices.Contains(m.Addrs, addr.Unmap()) {
		return true
	}
	return slices.ContainsFunc([]string{"localhost", "127.0.0.1", "::1", m.Name, short(m.Name)}, func(own string) bool { return sameName(own, name) })
}

// sameName compares names of hosts, with the users before them if there are such.
func sameName(a, b string) bool {
	i, j := strings.LastIndexByte(a, '@')+1, strings.LastIndexByte(b, '@')+1
	return a[:i] == b[:j] && strings.EqualFold(a[i:], b[j:])
}

// Place is where one rank runs.
type Place struct {
	Rank      int
	Host      int // its number among the hosts
	LocalRank int // among the ranks of its host
	LocalSize int
	CPUs      []int // bound to these; nil: not bound
}

// Map gives each rank its place. With bind, the ranks of a host get a core each in turn, beginning again when all are
// taken. machines are the hosts', in the same order.
func Map(size int, hosts []Host, machines []Machine, by Policy, bind bool) ([]Place, error) {
	rooms := make([]int, len(hosts))
	for i, h := range hosts {
		rooms[i] = h.SlotCount(machines[i].CPUs())
	}
	hostOf, err := by.assign(size, hosts, rooms)
	if err != nil {
		return nil, err
	}
	counts := make([]int, len(hosts))
	places := make([]Place, size)
	for rank, host := range hostOf {
		places[rank] = Place{Rank: rank, Host: host, LocalRank: counts[host]}
		if cores := machines[host].Cores; bind && len(cores) > 0 {
			places[rank].CPUs = cores[counts[host]%len(cores)]
		}
		counts[host]++
	}
	for i := range places {
		places[i].LocalSize = counts[places[i].Host]
	}
	return places, nil
}

// Needed says which hosts get ranks, or nil if that cannot be said without asking for processors.
func HostsNeeded(size int, hosts []Host, by Policy) ([]bool, error) {
	rooms := make([]int, len(hosts))
	for i, h := range hosts {
		if h.Unnumbered > 0 && by.PerNode == 0 {
			return nil, nil
		}
		rooms[i] = h.Slots
	}
	hostOf, err := by.assign(size, hosts, rooms)
	if err != nil {
		return nil, err
	}
	needed := make([]bool, len(hosts))
	for _, host := range hostOf {
		needed[host] = true
	}
	return needed, nil
}

// By is how ranks are dealt out to hosts. The zero value fills the slots of one host after another.
type Policy struct {
	RoundRobin bool // in turn, one to each host
	PerNode    int  // so many to each host, whatever slots it has; 0: not so
}

// ParseBy reads slot, node or ppr:N:node.
func ParsePolicy(s string) (Policy, error) {
	switch s {
	case "slot":
		return Policy{}, nil
	case "node":
		return Policy{RoundRobin: true}, nil
	}
	if number, ok := strings.CutPrefix(s, "ppr:"); ok {
		if number, ok = strings.CutSuffix(number, ":node"); ok {
			if n, err := parseSlots(number); err == nil {
				return Policy{PerNode: n}, nil
			}
		}
	}
	return Policy{}, fmt.Errorf("want slot, node or ppr:N:node")
}

// assign gives each rank its host. When all slots are taken, it begins again.
func (by Policy) assign(size int, hosts []Host, rooms []int) ([]int, error) {
	if by.PerNode > 0 {
		if size > by.PerNode*len(hosts) {
			return nil, fmt.Errorf("--map-by ppr:%d:node has room for %d ranks on %s, not for %d", by.PerNode, by.PerNode*len(hosts), Plural(len(hosts), "host"), size)
		}
		rooms = slices.Repeat([]int{by.PerNode}, len(hosts))
	}
	hostOf := make([]int, 0, size)
	taken := make([]int, len(hosts)) // of each host in all
	for len(hostOf) < size {
		before := len(hostOf)
		free := slices.Clone(rooms) // in this round
		for more := true; more && len(hostOf) < size; {
			more = false
			for i, h := range hosts {
				n := free[i]
				if by.RoundRobin {
					n = min(n, 1)
				}
				if n = min(n, size-len(hostOf)); h.Max > 0 {
					n = min(n, h.Max-taken[i])
				}
				if n <= 0 {
					continue
				}
				hostOf = append(hostOf, slices.Repeat([]int{i}, n)...)
				taken[i] += n
				free[i] -= n
				more = true
			}
		}
		if len(hostOf) == before {
			return nil, fmt.Errorf("%s are more than the %d that the hosts' max-slots allow", Plural(size, "rank"), len(hostOf))
		}
	}
	return hostOf, nil
}

// Count is a number of things in words: 1 slot, 2 slots.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Package slots decides where ranks run: which hosts a job has, how many slots each host has, and
// which rank gets which slot and which processors.
package slots

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Host is a host as the user requested it.
type Host struct {
	Name  string
	Slots int // number of slots that the user gave
	// How often the host was named without a number; each time adds a slot per processor.
	Unnumbered int
	Max        int  // the most ranks that the host gets; 0: no limit
	Local      bool // the host is this machine
}

// SlotCount returns the number of slots of a host with the given number of processors.
func (h Host) SlotCount(cpus int) int { return h.Slots + h.Unnumbered*cpus }

// TotalSlots returns the number of slots of all hosts. known is false if it depends on a host's
// processors.
func TotalSlots(hosts []Host) (n int, known bool) {
	for _, h := range hosts {
		if h.Unnumbered > 0 {
			return 0, false
		}
		n += h.Slots
	}
	return n, true
}

// Machine describes a host for the mapping.
type Machine struct {
	Name  string
	Cores [][]int      // for each core, the processors that this process may use
	Quota int          // how many of them the control group allows to use all the time; 0: all
	Addrs []netip.Addr // of its interfaces, except link-local ones
}

// CPUs returns the number of processors that ranks can use all the time.
func (m Machine) CPUs() int {
	n := m.Processors()
	if m.Quota > 0 {
		n = min(n, m.Quota)
	}
	return n
}

// Processors returns the number of processors that this process may use.
func (m Machine) Processors() int {
	n := 0
	for _, core := range m.Cores {
		n += len(core)
	}
	return n
}

// Merge adds up the requests for each host, and returns the hosts in the order of their first
// request. Names are compared without regard to case. All names and addresses of this machine m
// mean one host, unless onlyNames is set. Without requests, Merge returns this machine with a slot
// for each processor.
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

// AllLocal reports whether all requests name this machine.
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

// sameName compares host names without regard to case, and user names before them exactly.
func sameName(a, b string) bool {
	i, j := strings.LastIndexByte(a, '@')+1, strings.LastIndexByte(b, '@')+1
	return a[:i] == b[:j] && strings.EqualFold(a[i:], b[j:])
}

// Place is the place of one rank.
type Place struct {
	Rank      int
	Host      int // index of the host
	LocalRank int // the rank's number on its host
	LocalSize int
	CPUs      []int // the rank is bound to these processors; nil: not bound
}

// Map places size ranks on hosts. machines[i] describes hosts[i]. With bind, each rank of a host is
// bound to a core; when all cores are taken, Map starts again with the first.
func Map(size int, hosts []Host, machines []Machine, policy Policy, bind bool) ([]Place, error) {
	rooms := make([]int, len(hosts))
	for i, h := range hosts {
		rooms[i] = h.SlotCount(machines[i].CPUs())
	}
	hostOf, err := policy.assign(size, hosts, rooms)
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

// HostsNeeded reports which hosts get ranks. It returns nil if that depends on the hosts'
// processors.
func HostsNeeded(size int, hosts []Host, policy Policy) ([]bool, error) {
	rooms := make([]int, len(hosts))
	for i, h := range hosts {
		if h.Unnumbered > 0 && policy.PerNode == 0 {
			return nil, nil
		}
		rooms[i] = h.Slots
	}
	hostOf, err := policy.assign(size, hosts, rooms)
	if err != nil {
		return nil, err
	}
	needed := make([]bool, len(hosts))
	for _, host := range hostOf {
		needed[host] = true
	}
	return needed, nil
}

// Policy is the rule that assigns ranks to hosts. The zero value fills the slots of one host after
// another.
type Policy struct {
	RoundRobin bool // one rank to each host in turn
	PerNode    int  // this many ranks to each host, whatever its slots; 0: unused
}

// ParsePolicy parses the value of --map-by: slot, node or ppr:N:node.
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
	return Policy{}, errors.New("want slot, node or ppr:N:node")
}

// assign returns the host of each rank. When all slots are taken, it starts again with the first
// host.
func (p Policy) assign(size int, hosts []Host, rooms []int) ([]int, error) {
	if p.PerNode > 0 {
		if size > p.PerNode*len(hosts) {
			return nil, fmt.Errorf("--map-by ppr:%d:node places %d ranks on %s, but the job has %d", p.PerNode, p.PerNode*len(hosts), Plural(len(hosts), "host"), size)
		}
		rooms = slices.Repeat([]int{p.PerNode}, len(hosts))
	}
	hostOf := make([]int, 0, size)
	taken := make([]int, len(hosts)) // ranks of each host
	for len(hostOf) < size {
		before := len(hostOf)
		free := slices.Clone(rooms) // slots of each host that are free in this pass
		for more := true; more && len(hostOf) < size; {
			more = false
			for i, h := range hosts {
				n := free[i]
				if p.RoundRobin {
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
			return nil, fmt.Errorf("%s: the hosts' max-slots allow only %d", Plural(size, "rank"), len(hostOf))
		}
	}
	return hostOf, nil
}

// Plural returns a number with a noun: 1 slot, 2 slots.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/rdma"
)

// betweenChecks are the checks of a host that compare it with others.
func betweenChecks() []check {
	return []check{
		{"connections", "ranks of the two hosts cannot send to each other over TCP, or have fewer rails", connections},
		{"mtu", "long packets may vanish on the way, so that large messages hang and small ones do not", sameMTU},
		{"clock", "times in logs and traces of different hosts cannot be compared; make and other tools mistake new files for old", clockOffset},
		{"same build", "ranks of different versions refuse each other", sameBuild},
		{"same verbs", "ranks use TCP between the hosts, or connections over verbs fail", sameVerbs},
	}
}

// trouble is what several failed probes to a host have in common. They share a line of the report.
type trouble struct {
	outcome Outcome
	detail  string
	to      netip.Addr
	level   Level
}

// connections judges the probes to a host. It has the finding, because its firewall is the likely
// cause.
func connections(j *Job, h *Host) (list []result) {
	if len(j.Hosts) < 2 || !j.allows("tcp") {
		return nil
	}
	var order []trouble
	from := map[trouble][]string{}
	worked, ports := 0, map[trouble]uint16{}
	for peer := range j.Hosts {
		good, total, bad := 0, 0, []Probe(nil)
		for _, p := range j.Probes {
			if p.From != peer || p.To != h.Rank {
				continue
			}
			total++
			if p.Outcome == Connected {
				good++
			} else {
				bad = append(bad, p)
			}
		}
		worked += good
		if total == 0 && isOther(h, &j.Hosts[peer]) {
			t := untried(j, peer, h)
			if from[t] == nil {
				order = append(order, t)
			}
			from[t] = append(from[t], j.Hosts[peer].Name)
		}
		for _, p := range bad {
			t := trouble{p.Outcome, p.Detail, p.Remote.WithZone(""), Warning}
			switch {
			case good == 0:
				t.level = Broken
			case p.Spare:
				t.level = Hint
			}
			if from[t] == nil {
				order = append(order, t)
			}
			ports[t] = p.Port
			if name := j.Hosts[peer].Name; !slices.Contains(from[t], name) {
				from[t] = append(from[t], name)
			}
		}
	}
	for _, t := range order {
		list = append(list, t.result(j, h, from[t], ports[t]))
	}
	if len(list) == 0 && worked > 0 {
		return ok(fmt.Sprintf("%d from other hosts work, in at least %v", worked, shortestTrip(j, h)))
	}
	return list
}

// untried returns the reason why there is no probe from one host to another.
func untried(j *Job, from int, to *Host) trouble {
	addresses := make([][]Interface, len(j.Hosts))
	for i := range j.Hosts {
		addresses[i] = j.Hosts[i].interfaces()
	}
	if slices.ContainsFunc(plan(from, addresses), func(p Probe) bool { return p.To == to.Rank }) {
		return trouble{outcome: notTried, level: Broken}
	}
	t := trouble{outcome: unpaired, level: Broken, detail: unrelated(j, from, to.Rank)}
	if j.allows("ibverbs") && len(to.Facts.RDMA) > 0 {
		t.level = Warning
	}
	return t
}

// Outcomes of two hosts without a probe.
const (
	unpaired Outcome = "unpaired"  // no address of the first host can reach the second
	notTried Outcome = "not tried" // the doctor's rank ended before it tried
)

// isOther reports whether two hosts are different machines, as far as is known.
func isOther(a, b *Host) bool {
	return a != b && b.Facts != nil && (b.Facts.Machine == "" || b.Facts.Machine != a.Facts.Machine)
}

// unrelated returns the reason why no address of one host is paired with an address of the other.
func unrelated(j *Job, a, b int) string {
	text := func(h *Host) string {
		var words []string
		for _, i := range h.Facts.Interfaces {
			if i.used() && i.Port != 0 {
				words = append(words, fmt.Sprintf("%v/%d", i.Addr, i.Bits))
			}
		}
		return cmp.Or(strings.Join(words, ", "), "none")
	}
	return fmt.Sprintf("no address of one host can reach an address of the other: %s and %s", text(&j.Hosts[a]), text(&j.Hosts[b]))
}

func (t trouble) result(j *Job, h *Host, from []string, port uint16) result {
	ports, dport := fmt.Sprintf("port %d", port), j.Settings.String("tcp.ports")
	if dport == "any" {
		dport = "1024-65535"
	}
	r := result{level: t.level, wanted: "a connection, and all bytes acknowledged"}
	who := "from " + nameList(from)
	open := fmt.Sprintf("on %s, as root: nft insert rule inet filter input tcp dport %s accept; or choose ports that are open: --set tcp.ports=FIRST-LAST", h.Name, dport)
	other := fmt.Sprintf("leave the address out: --set tcp.exclude=%v", t.to)
	switch t.outcome {
	case Silent:
		r.found, r.fix = fmt.Sprintf("%v %s is silent %s: a firewall drops packets, or there is no route", t.to, ports, who), open
	case Refused:
		r.found, r.fix = fmt.Sprintf("%v %s is refused %s, although a rank listens: a firewall rejects packets", t.to, ports, who), open
	case Unreachable:
		r.found, r.fix = fmt.Sprintf("%v is unreachable %s: %s", t.to, who, t.detail), fmt.Sprintf("ip route get %v, there; or %s", t.to, other)
	case Stalled:
		r.found = fmt.Sprintf("%v takes short packets %s, but not long ones: %s; a link on the way has a smaller MTU", t.to, who, t.detail)
		r.fix = fmt.Sprintf("ping -M do -s 8972 %v, with smaller sizes until it answers; then ip link set INTERFACE mtu THAT+28, or raise the switch's", t.to)
	case Foreign:
		r.found, r.fix = fmt.Sprintf("%v leads to another machine %s: two machines have the same address", t.to, who), other
	case notTried:
		r.found, r.fix = "not tried "+who+": the doctor's rank there ended before", "mpirun-go doctor, again; the lines before this report may say why the rank ended"
	case unpaired:
		r.found, r.fix = who+": "+t.detail, "name networks that all hosts share: --set tcp.include=NETWORK/BITS"
	default:
		r.found, r.fix = fmt.Sprintf("%v %s fails %s: %s", t.to, ports, who, t.detail), other
	}
	return r
}

// nameList lists names, at most five.
func nameList(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func shortestTrip(j *Job, h *Host) time.Duration {
	least := int64(0)
	for _, p := range j.Probes {
		if p.To == h.Rank && p.RoundTripNanos > 0 && (least == 0 || p.RoundTripNanos < least) {
			least = p.RoundTripNanos
		}
	}
	return time.Duration(least).Round(time.Microsecond)
}

// sameMTU compares the MTUs of addresses that are paired. The finding goes to the host with the
// smaller MTU.
func sameMTU(j *Job, h *Host) (list []result) {
	if len(j.Hosts) < 2 {
		return nil
	}
	mtuOf := map[netip.Addr]int{}
	for _, other := range j.Hosts {
		for _, i := range other.interfaces() {
			mtuOf[i.Addr] = i.MTU
		}
	}
	for _, i := range h.interfaces() {
		largest, where := i.MTU, ""
		for _, p := range j.Probes {
			if there := mtuOf[p.Local]; p.To == h.Rank && p.Remote == i.Addr && there > largest {
				largest, where = there, j.Hosts[p.From].Name
			}
		}
		if where != "" && i.used() {
			list = append(list, result{Warning, fmt.Sprintf("%s has MTU %d, and %s %d", i.Name, i.MTU, where, largest), "the same on all hosts", fmt.Sprintf("ip link set %s mtu %d, if the switch allows it", i.Name, largest)})
		}
	}
	if len(list) == 0 {
		return ok("the same on all hosts")
	}
	return list
}

func (h *Host) interfaces() []Interface {
	if h.Facts == nil {
		return nil
	}
	return h.Facts.Interfaces
}

// offsetLimit is the largest accepted difference between clocks. NTP keeps it at some milliseconds.
const offsetLimit = 100 * time.Millisecond

// clockOffset compares a host's clock with the clock of the first host that has facts. It uses the
// probe with the shortest round trip; the error is at most half the round trip.
func clockOffset(j *Job, h *Host) []result {
	first := slices.IndexFunc(j.Hosts, func(h Host) bool { return h.Facts != nil })
	switch {
	case len(j.Hosts) < 2:
		return nil
	case first == h.Rank:
		return ok("the clocks of other hosts are compared with this one")
	}
	var best *Probe
	for i := range j.Probes {
		p := &j.Probes[i]
		between := p.From == first && p.To == h.Rank || p.From == h.Rank && p.To == first
		if between && p.RoundTripNanos > 0 && (best == nil || p.RoundTripNanos < best.RoundTripNanos) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	offset := time.Duration(best.OffsetNanos)
	if best.From == h.Rank {
		offset = -offset
	}
	margin := time.Duration(best.RoundTripNanos / 2)
	direction := "ahead of"
	if offset < 0 {
		direction = "behind"
	}
	found := fmt.Sprintf("%v %s %s, ±%v", offset.Abs().Round(time.Microsecond), direction, j.Hosts[first].Name, margin.Round(time.Microsecond))
	if offset.Abs() <= offsetLimit+margin {
		return ok(found)
	}
	return one(result{Warning, found, fmt.Sprintf("within %v", offsetLimit), "timedatectl set-ntp true; chronyc makestep"})
}

func sameBuild(j *Job, h *Host) []result {
	if len(j.Hosts) < 2 {
		return nil
	}
	for i := range j.Hosts {
		other := &j.Hosts[i]
		if other.Facts != nil && (other.Facts.Build != h.Facts.Build || other.Facts.Version != h.Facts.Version) {
			return one(result{Broken, fmt.Sprintf("mpirun-go %s, build %s; on %s %s, build %s", h.Facts.Version, h.Facts.Build, other.Name, other.Facts.Version, other.Facts.Build),
				"the same on all hosts", "rm -r ~/.cache/mpigo, on both"})
		}
	}
	return ok("the same mpirun-go everywhere")
}

// sameVerbs compares the ports of a host with the ports of the first host that has any.
func sameVerbs(j *Job, h *Host) []result {
	if len(j.Hosts) < 2 || !j.allows("ibverbs") {
		return nil
	}
	i := slices.IndexFunc(j.Hosts, func(h Host) bool { return h.Facts != nil && len(portKinds(h.Facts.RDMA)) > 0 })
	if i < 0 {
		return nil
	}
	want, have := portKinds(j.Hosts[i].Facts.RDMA), portKinds(h.Facts.RDMA)
	if slices.Equal(want, have) {
		return ok(strings.Join(have, "; "))
	}
	return one(result{Warning, cmp.Or(strings.Join(have, "; "), "no port that is up"),
		fmt.Sprintf("as %s: %s", j.Hosts[i].Name, strings.Join(want, "; ")), "rdma link show, here and there; ibv_devinfo -v"})
}

// portKinds describes the ports that are up, without properties that may differ between hosts.
func portKinds(devices []rdma.Device) (kinds []string) {
	for _, d := range devices {
		for _, p := range d.Ports {
			if p.State == "ACTIVE" {
				kinds = append(kinds, portText("port", p))
			}
		}
	}
	return kinds
}

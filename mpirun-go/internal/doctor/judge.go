package doctor

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/tunable"
)

// Host is one host of the job, with the facts that its rank has collected.
type Host struct {
	Name  string // as the user names it
	Slots int    // the ranks that a job has there by default
	Rank  int    // of the doctor's job; the host's place in Job.Hosts
	Facts *Facts // nil: its rank said nothing
	Error string // why there are no facts
}

// Job is the input of the checks.
type Job struct {
	Hosts    []Host
	Settings tunable.Set
	Probes   []Probe
}

// ranks is the number of ranks of a job that fills all slots.
func (j *Job) ranks() (n int) {
	for _, h := range j.Hosts {
		n += h.Slots
	}
	return n
}

// allows reports whether a job may use a transport.
func (j *Job) allows(transport string) bool {
	return slices.Contains(j.Settings.List("btl"), transport)
}

// mayUseTCP reports whether ranks of a host have addresses for TCP.
func (j *Job) mayUseTCP(h *Host) bool { return j.allows("tcp") && h.Facts.TCPError == "" }

// mayUseVerbs reports whether ranks of a host have a device for verbs.
func (j *Job) mayUseVerbs(h *Host) bool { return j.allows("ibverbs") && len(h.Facts.RDMA) > 0 }

// needsVerbs reports whether verbs is the only allowed transport between ranks of a host and some
// other ranks.
func (j *Job) needsVerbs(h *Host) bool {
	hasPeers := len(j.Hosts) > 1 || h.Slots > 1 && !j.allows("sm")
	return j.allows("ibverbs") && hasPeers && !j.allows("tcp")
}

// has reports whether some host has an address. A host without facts may have it.
func (j *Job) has(addr netip.Addr) bool {
	return slices.ContainsFunc(j.Hosts, func(h Host) bool {
		return h.Facts == nil || slices.ContainsFunc(h.Facts.Interfaces, func(i Interface) bool { return i.Addr.WithZone("") == addr })
	})
}

// result is the result of a check on a host. If it is OK, only found is set.
type result struct {
	level              Level
	found, wanted, fix string
}

// check is a row of the tables of checks.
type check struct {
	name   string
	breaks string // what does not work if the result is not OK
	// run checks the host. Each result is a line of the report. It returns no result if the check
	// does not apply.
	run func(j *Job, h *Host) []result
}

// Judge runs all checks. The findings are sorted: the host with the worst one first.
func Judge(j *Job) []Finding {
	var list []Finding
	for i := range j.Hosts {
		h := &j.Hosts[i]
		if h.Facts == nil {
			list = append(list, Finding{
				Host: h.Name, Check: "reached", Level: Broken, Found: withoutTry(h.Error), Wanted: "a rank of the doctor that answers",
				Breaks: "no job starts on this host", Fix: tryCommand(h),
			})
			continue
		}
		for _, c := range slices.Concat(hostChecks(), betweenChecks()) {
			for _, r := range c.run(j, h) {
				f := Finding{Host: h.Name, Check: c.name, Level: r.level, Found: r.found}
				if r.level != OK {
					f.Wanted, f.Breaks, f.Fix = r.wanted, c.breaks, r.fix
				}
				list = append(list, f)
			}
		}
	}
	sortFindings(list)
	return list
}

// tryCommand is a command that shows why a host cannot be reached. The error may end in one.
func tryCommand(h *Host) string {
	if _, command, ok := strings.Cut(h.Error, "; try: "); ok {
		return command
	}
	if _, command, ok := strings.Cut(h.Error, "; try on "); ok {
		return "on " + command
	}
	return "mpirun-go -H " + h.Name + " hostname"
}

// withoutTry is an error without that command.
func withoutTry(text string) string {
	text, _, _ = strings.Cut(text, "; try ")
	text, _, _ = strings.Cut(text, "; try: ")
	return text
}

// Healthy reports whether no finding is Broken.
func Healthy(list []Finding) bool {
	return !slices.ContainsFunc(list, func(f Finding) bool { return f.Level == Broken })
}

func one(r result) []result { return []result{r} }

func ok(found string) []result { return one(result{level: OK, found: found}) }

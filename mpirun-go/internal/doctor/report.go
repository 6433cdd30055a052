package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// Report is the output of mpirun-go doctor. Its JSON form is for programs, and is complete.
type Report struct {
	Healthy  bool             `json:"healthy"` // nothing is broken
	Findings []Finding        `json:"findings"`
	Facts    map[string]Facts `json:"facts"` // by host
	Hosts    []string         `json:"hosts"` // by the ranks in Probes
	Probes   []Probe          `json:"probes"`
}

// NewReport judges a job.
func NewReport(j *Job) Report {
	r := Report{Findings: Judge(j), Facts: map[string]Facts{}, Hosts: []string{}, Probes: j.Probes}
	r.Healthy = Healthy(r.Findings)
	for _, h := range j.Hosts {
		r.Hosts = append(r.Hosts, h.Name)
		if h.Facts != nil {
			r.Facts[h.Name] = *h.Facts
		}
	}
	if r.Probes == nil {
		r.Probes = []Probe{}
	}
	return r
}

// JSON writes the report as one indented JSON object.
func (r Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Text writes the report for people: a line for each finding, by host, the worst first. Unless all
// is set, the checks that are OK share the last line of their host.
func (r Report) Text(w io.Writer, all bool) error {
	var b strings.Builder
	count := map[Level]int{}
	for _, f := range r.Findings {
		count[f.Level]++
	}
	fmt.Fprintf(&b, "%s: %d broken, %s, %s, %d ok\n", slots.Plural(len(r.Hosts), "host"),
		count[Broken], slots.Plural(count[Warning], "warning"), slots.Plural(count[Hint], "hint"), count[OK])
	// Hosts with the same lines share them.
	var order []string
	hosts := map[string][]string{}
	for rest := r.Findings; len(rest) > 0; {
		host := rest[0].Host
		n := slices.IndexFunc(rest, func(f Finding) bool { return f.Host != host })
		if n < 0 {
			n = len(rest)
		}
		text := lines(rest[:n], all)
		if hosts[text] == nil {
			order = append(order, text)
		}
		hosts[text] = append(hosts[text], host)
		rest = rest[n:]
	}
	for _, text := range order {
		fmt.Fprintf(&b, "\n%s\n%s", strings.Join(hosts[text], ", "), text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// lines are the lines of a host.
func lines(list []Finding, all bool) string {
	var b strings.Builder
	var well []string
	for _, f := range list {
		switch {
		case f.Level != OK:
			fmt.Fprintf(&b, "  %-8s %s: %s; wanted: %s; breaks: %s; fix: %s\n", f.Level, f.Check, f.Found, f.Wanted, f.Breaks, f.Fix)
		case all:
			fmt.Fprintf(&b, "  %-8s %s: %s\n", f.Level, f.Check, f.Found)
		case !slices.Contains(well, f.Check):
			well = append(well, f.Check)
		}
	}
	if len(well) > 0 {
		fmt.Fprintf(&b, "  %-8s %s\n", OK, strings.Join(well, ", "))
	}
	return b.String()
}

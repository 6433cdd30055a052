package profile

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/mpigo/mpigo/internal/calls"
)

//go:embed page.html
var pageText string

// page is the data of the template.
type page struct {
	Command, Started, Missing string
	Failed, Why               []string
	Size                      int
	Hosts                     []hostRanks
	Sum                       Times
	Elapsed                   string
	Imbalance                 string
	Times                     []Times
	Balance, Bytes, Messages  template.HTML
	Kinds                     []row
	Sites                     []*Site
	More                      int // sites that are not listed
	States                    []*state
	Protocols                 []row
	Rails                     []railRow
	Lengths                   []lengthRow
}

type hostRanks struct{ Host, Ranks string }

// row is a row with a bar, which is Share percent long.
type row struct {
	Name, Value string
	Count       string
	Share       float64
}

type railRow struct {
	Name, Peers, State string
	Rails, Errors      int
	Bytes              float64
}

type lengthRow struct {
	Call, Length, Calls string
	Share               float64
}

// HTML writes the page. The page loads no other resources.
func (j *Job) HTML(w io.Writer) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"time": timeText, "bytes": bytesText, "count": countText, "percent": percentText, "share": share,
		"call": calls.GoName, "base": filepath.Base, "width": func(p float64) string { return fmt.Sprintf("%.2f", min(p, 100)) },
		"approximate": approximate,
		"short":       func(f string) string { return f[strings.LastIndexByte(f, '/')+1:] },
	}).Parse(pageText)
	if err != nil {
		return err
	}
	return t.Execute(w, j.page())
}

func (j *Job) page() page {
	f := j.Files[0]
	times := j.Times()
	sites := j.Sites()
	p := page{
		Command: strings.Join(f.Command, " "), Started: time.Unix(f.Started, 0).Format("2006-01-02 15:04:05 MST"),
		Missing: ranges(j.Missing), Why: j.Why, Size: j.Size, Sum: sumOf(times), Times: times,
		Balance: balance(times), States: j.States(sites),
	}
	p.Bytes, p.Messages = j.matrices()
	longest, most, mean := 0.0, 0.0, 0.0
	for _, t := range times {
		longest = max(longest, t.App)
		most = max(most, t.App-t.Calls)
		mean += (t.App - t.Calls) / float64(len(times))
	}
	p.Elapsed = timeText(longest)
	p.Imbalance = approximate(p.Sum.Estimated, percentText(share(most-mean, most)))
	for _, f := range j.Files {
		if f.Error != "" {
			p.Failed = append(p.Failed, fmt.Sprintf("rank %d: %s", f.Rank, f.Error))
		}
	}
	p.Hosts = j.hosts()
	for _, k := range j.Kinds() {
		p.Kinds = append(p.Kinds, row{calls.GoName(k.Name), approximate(k.Estimated, timeText(k.Nanos)), countText(float64(k.Calls)), share(k.Nanos, p.Sum.Calls)})
	}
	p.Sites = first(byTime(sites), mostSites)
	p.More = len(sites) - len(p.Sites)
	p.Protocols, p.Rails, p.Lengths = j.protocolRows(), j.railRows(), j.lengthRows()
	return p
}

func (j *Job) hosts() (list []hostRanks) {
	ranks := make(map[string][]int)
	var names []string
	for _, f := range j.Files {
		if ranks[f.Host] == nil {
			names = append(names, f.Host)
		}
		ranks[f.Host] = append(ranks[f.Host], f.Rank)
	}
	for _, name := range names {
		list = append(list, hostRanks{name, ranges(ranks[name])})
	}
	return list
}

// protocolRows returns the counters. Counters of messages sent have a share, the others have none.
func (j *Job) protocolRows() (rows []row) {
	what := map[string]string{
		"SentInline": "inline: short, copied at once", "SentEager": "eager: sent at once",
		"SentRendezvous": "rendezvous: after the receiver has answered", "SentGet": "remote read by the receiver",
	}
	all := j.Protocols()
	sent := 0.0
	for _, p := range all {
		if what[p.Name] != "" {
			sent += float64(p.Count)
		}
	}
	for _, p := range all {
		if text := what[p.Name]; text != "" {
			rows = append(rows, row{text, percentText(share(float64(p.Count), sent)), countText(float64(p.Count)), share(float64(p.Count), sent)})
		}
	}
	for _, p := range all {
		if what[p.Name] == "" && p.Name != "Received" {
			rows = append(rows, row{Name: p.Name, Count: countText(float64(p.Count))})
		}
	}
	return rows
}

// railRows sums up the rails of the same name and state.
func (j *Job) railRows() (rows []railRow) {
	type key struct{ name, state string }
	at := make(map[key]int)
	for _, f := range j.Files {
		for _, r := range f.Rails {
			k := key{r.Name, r.State}
			i, known := at[k]
			if !known {
				i = len(rows)
				at[k] = i
				rows = append(rows, railRow{Name: r.Name, State: r.State})
			}
			rows[i].Rails++
			rows[i].Errors += int(r.Errors)
			rows[i].Bytes += float64(r.Bytes)
		}
	}
	return rows
}

func (j *Job) lengthRows() (rows []lengthRow) {
	for _, k := range j.Kinds() {
		if id := calls.Named(k.Name); !id.SendsAtOnce() && !id.IsCollective() {
			continue
		}
		for bits, n := range k.Sizes {
			if n > 0 {
				rows = append(rows, lengthRow{calls.GoName(k.Name), lengthClass(bits), countText(float64(n)), share(float64(n), float64(k.Calls))})
			}
		}
	}
	return rows
}

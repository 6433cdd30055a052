package doctor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"sync"
)

// Reader collects the lines of the doctor's ranks. It is the standard output of their job.
type Reader struct {
	// OnProgress, if not nil, is called when a rank reports progress, with the number of probes
	// that are done and the number of probes that are known.
	OnProgress func(done, of int)

	mu       sync.Mutex
	rest     []byte // of a line that has not ended
	facts    map[int]*Facts
	probes   []Probe
	progress map[int]Progress
}

// maxRestBytes bounds an unfinished line.
const maxRestBytes = 1 << 20

// Write implements io.Writer. It drops lines that do not parse as a Line.
func (r *Reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, p...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			break
		}
		r.take(line)
		r.rest = rest
	}
	if len(r.rest) > maxRestBytes {
		r.rest = nil
	}
	return len(p), nil
}

func (r *Reader) take(text []byte) {
	var l Line
	if json.Unmarshal(text, &l) != nil {
		return
	}
	if r.facts == nil {
		r.facts, r.progress = map[int]*Facts{}, map[int]Progress{}
	}
	switch {
	case l.Facts != nil:
		r.facts[l.Rank] = l.Facts
	case l.Probe != nil:
		r.probes = append(r.probes, *l.Probe)
	case l.Progress != nil:
		r.progress[l.Rank] = *l.Progress
		done, of := 0, 0
		for _, p := range r.progress {
			done, of = done+p.Done, of+p.Of
		}
		if r.OnProgress != nil {
			r.OnProgress(done, of)
		}
	}
}

// Fill sets the facts of the job's hosts, by rank, and the job's probes. It ignores lines whose
// rank is not a host of the job. missing is the error of a host whose rank wrote nothing.
func (r *Reader) Fill(j *Job, missing string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range j.Hosts {
		h := &j.Hosts[i]
		if h.Facts = r.facts[i]; h.Facts == nil && h.Error == "" {
			h.Error = missing
		}
	}
	known := func(rank int) bool { return rank >= 0 && rank < len(j.Hosts) && j.Hosts[rank].Facts != nil }
	for _, p := range r.probes {
		if known(p.From) && known(p.To) {
			j.Probes = append(j.Probes, p)
		}
	}
	slices.SortFunc(j.Probes, func(a, b Probe) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), a.Local.Compare(b.Local), a.Remote.Compare(b.Remote))
	})
}

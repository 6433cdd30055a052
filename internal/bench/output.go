package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mpigo/mpigo/comm"
)

// column is a column of a table, or a part of a JSON object.
type column struct {
	title  string
	width  int
	digits int    // after the decimal point
	part   string // of the object; a second value begins a new object
	unit   string // of a value
}

// Parts of an object.
const (
	value = "value"
	least = "min"
	most  = "max"
	whole = "overall"
	other = "compute"
	plain = "nonblocking"
)

// The columns of the tables. Never written.
var (
	latencyColumns    = []column{{"Latency (us)", 18, 3, value, "us"}}
	bandwidthColumns  = []column{{"Bandwidth (MB/s)", 18, 2, value, "MB/s"}}
	rateColumns       = []column{{"MB/s", 18, 2, value, "MB/s"}, {"Messages/s", 18, 2, value, "msg/s"}}
	collectiveColumns = []column{
		{"Avg Latency(us)", 18, 3, value, "us"},
		{"Min Latency(us)", 18, 3, least, ""},
		{"Max Latency(us)", 18, 3, most, ""},
	}
	persistentColumns = append(slices.Clone(collectiveColumns),
		column{"Nonblocking(us)", 18, 3, plain, ""},
		column{"Ratio", 8, 2, value, "of nonblocking"})
	overlapColumns = []column{
		{"Overall(us)", 18, 3, whole, ""},
		{"Compute(us)", 18, 3, other, ""},
		{"Pure Comm.(us)", 18, 3, value, "us"},
		{"Overlap(%)", 18, 2, value, "%"},
	}
)

const sizeWidth = 10

// printer writes results.
type printer struct {
	out   io.Writer
	cfg   config
	ranks int
	btl   string
}

// newPrinter makes a printer. All ranks call it: they connect in a barrier, so the transports
// between them are known.
func newPrinter(out io.Writer, cfg config, world *comm.Comm) (*printer, error) {
	if err := world.Barrier(); err != nil {
		return nil, err
	}
	return &printer{out: out, cfg: cfg, ranks: world.Size(), btl: transports(world.Rank(), world.Rails())}, nil
}

// transports returns the names of the transports to other ranks, such as "sm" or "ibverbs,tcp".
func transports(rank int, rails []comm.RailStatus) string {
	var names []string
	for _, r := range rails {
		name, _, _ := strings.Cut(r.Rail, ":")
		name = strings.TrimRight(name, "0123456789")
		if r.Peer != rank && r.State == "up" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "self"
	}
	return strings.Join(names, ",")
}

// header prints the lines above a table.
func (p *printer) header() error {
	if p.cfg.json {
		return nil
	}
	var line strings.Builder
	fmt.Fprintf(&line, "# mpigo %s, %d ranks, %s\n", p.cfg.bench.name, p.ranks,
		strings.Join(append([]string{p.btl}, p.cfg.variants()...), ", "))
	line.WriteString(pad("# Size", sizeWidth))
	for _, c := range p.cfg.bench.columns {
		fmt.Fprintf(&line, "%*s", c.width, c.title)
	}
	_, err := fmt.Fprintln(p.out, line.String())
	return err
}

// variants describes the flags that change what is measured.
func (cfg config) variants() (names []string) {
	for _, v := range []struct {
		on   bool
		name string
	}{
		{cfg.alloc, "Alloc memory"},
		{cfg.fresh, "fresh buffers"},
		{cfg.unexpected > 0, strconv.Itoa(cfg.unexpected) + " % unexpected"},
		{cfg.twoComms, "two communicators"},
		{cfg.isend, "Isend and Irecv"},
		{cfg.tests > 0, strconv.Itoa(cfg.tests) + " calls of Test"},
		{cfg.goroutines > 1, strconv.Itoa(cfg.goroutines) + " goroutines"},
		{cfg.window != defaultWindow, "window of " + strconv.Itoa(cfg.window)},
		{cfg.validate, "validated"},
	} {
		if v.on {
			names = append(names, v.name)
		}
	}
	return names
}

// row prints the results of one size.
func (p *printer) row(bytes int, values []float64) error {
	if p.cfg.json {
		return p.objects(bytes, values)
	}
	var line strings.Builder
	line.WriteString(pad(strconv.Itoa(bytes), sizeWidth))
	for i, c := range p.cfg.bench.columns {
		fmt.Fprintf(&line, "%*.*f", c.width, c.digits, values[i])
	}
	_, err := fmt.Fprintln(p.out, line.String())
	return err
}

func pad(text string, width int) string { return fmt.Sprintf("%-*s", width, text) }

// object is one result as JSON.
type object struct {
	Bench   string      `json:"bench"`
	Size    int         `json:"size"`
	Value   json.Number `json:"value"`
	Min     json.Number `json:"min,omitempty"`
	Max     json.Number `json:"max,omitempty"`
	Overall json.Number `json:"overall,omitempty"`
	Compute json.Number `json:"compute,omitempty"`
	// Nonblocking is the time of the nonblocking call, in the unit of Value.
	Nonblocking json.Number `json:"nonblocking,omitempty"`
	Unit        string      `json:"unit"`
	Ranks       int         `json:"ranks"`
	BTL         string      `json:"btl"`
	// Variants are the flags that change what is measured, as the title of a table has them.
	Variants []string `json:"variants,omitempty"`
}

func (p *printer) objects(bytes int, values []float64) error {
	empty := object{Bench: p.cfg.bench.name, Size: bytes, Ranks: p.ranks, BTL: p.btl, Variants: p.cfg.variants()}
	objects := []object{empty}
	for i, c := range p.cfg.bench.columns {
		last := &objects[len(objects)-1]
		if c.part == value && last.Value != "" {
			objects = append(objects, empty)
			last = &objects[len(objects)-1]
		}
		number := json.Number(strconv.FormatFloat(values[i], 'g', 6, 64))
		switch c.part {
		case value:
			last.Value, last.Unit = number, c.unit
		case least:
			last.Min = number
		case most:
			last.Max = number
		case whole:
			last.Overall = number
		case other:
			last.Compute = number
		case plain:
			last.Nonblocking = number
		}
	}
	enc := json.NewEncoder(p.out)
	for _, o := range objects {
		if err := enc.Encode(o); err != nil {
			return err
		}
	}
	return nil
}

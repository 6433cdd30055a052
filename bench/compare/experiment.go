package main

import "strconv"

// experiment is a benchmark that all contenders run.
type experiment struct {
	name  string // in results
	ranks int
	args  []string // of the program: the benchmark's name and flags
	sizes string   // as -m takes them; none if empty
	quick string   // likewise, in a quick run; it is left out if this is empty
	tcp   bool     // messages go by TCP
	kind  kind
}

type kind int

const (
	inside     kind = iota // the program measures
	wholeJob               // the time from the start to the end of the job
	goroutines             // ranks are goroutines; against a channel
)

// noSizes stands in quick for a benchmark that has none.
const noSizes = "-"

// experiments is all of them. What there is to be seen is what marks asks for, and how the
// same goes when it is made less easy.
func experiments() []experiment {
	const some, few = "8,1K,8K,64K,1M", "8,64K"
	all := []experiment{
		{name: "latency", ranks: 2, args: []string{"latency"}, sizes: "1:4M", quick: "8,1K,64K,1M"},
		{name: "bw", ranks: 2, args: []string{"bw"}, sizes: "1:4M", quick: "8,8K,64K,1M"},
		{name: "bibw", ranks: 2, args: []string{"bibw"}, sizes: some},
		{name: "platency", ranks: 2, args: []string{"platency"}, sizes: some, quick: "8"},
		{name: isendName, ranks: 2, args: []string{"latency", "--isend"}, sizes: some, quick: "8"},
		{name: "latency, fresh buffers", ranks: 2, args: []string{"latency", "--fresh"}, sizes: some},
		{name: "bw, fresh buffers", ranks: 2, args: []string{"bw", "--fresh"}, sizes: some},
		{name: "latency, 10 % unexpected", ranks: 2, args: []string{"latency", "--unexpected", "10"}, sizes: some},
		{name: "bw, 10 % unexpected", ranks: 2, args: []string{"bw", "--unexpected", "10"}, sizes: some},
		{name: "latency, two communicators", ranks: 2, args: []string{"latency", "--two-comms"}, sizes: some},
		{name: "bw, two communicators", ranks: 2, args: []string{"bw", "--two-comms"}, sizes: some},
	}
	for _, e := range []experiment{
		{name: latencyTCP, ranks: 2, args: []string{"latency"}, sizes: "1:4M", quick: "8,1K,64K,1M"},
		{name: bwTCP, ranks: 2, args: []string{"bw"}, sizes: "1:4M", quick: "64K,1M"},
	} {
		e.tcp = true
		all = append(all, e)
	}
	for _, ranks := range []int{2, 4, 8} {
		quick, quickSizes := "", ""
		if ranks != 4 {
			quick, quickSizes = noSizes, "8"
		}
		all = append(all,
			experiment{name: "barrier", ranks: ranks, args: []string{"barrier"}, quick: quick},
			experiment{name: "allreduce", ranks: ranks, args: []string{"allreduce"}, sizes: "8,64K,1M", quick: quickSizes})
	}
	return append(all,
		experiment{name: startName, ranks: 2, args: []string{"empty"}, quick: noSizes, kind: wholeJob},
		experiment{name: startName, ranks: 8, args: []string{"empty"}, kind: wholeJob},
		experiment{name: goroutinesName, ranks: 2, args: []string{"latency"}, sizes: few, quick: "8", kind: goroutines})
}

// split gives an experiment for each of some sizes; itself if there are none, or it has none, or no contenders who take turns.
func (e experiment) split(sizes []string) []experiment {
	if len(sizes) == 0 || e.sizes == "" || e.kind == goroutines {
		return []experiment{e}
	}
	var all []experiment
	for _, e.sizes = range sizes {
		all = append(all, e)
	}
	return all
}

// Names that are used in several places.
const (
	isendName      = "latency, Isend and Irecv"
	startName      = "start to end of an empty job"
	goroutinesName = "latency between goroutines"
	latencyTCP     = "latency, TCP"
	bwTCP          = "bw, TCP"
)

// command is what follows the program's name.
func (e experiment) command(quick bool) []string {
	args := e.args
	sizes := e.sizes
	if quick && e.quick != noSizes {
		sizes = e.quick
	}
	if sizes != "" {
		args = append(args[:len(args):len(args)], "-m", sizes)
	}
	if e.kind == goroutines {
		args = append(args[:len(args):len(args)], "--local", strconv.Itoa(e.ranks))
	}
	if e.kind != wholeJob {
		args = append(args[:len(args):len(args)], "--json")
	}
	return args
}

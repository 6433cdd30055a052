package main

import (
	"slices"
	"strconv"
	"strings"
)

// experiment is a benchmark that all contenders run.
type experiment struct {
	name  string // in the results
	ranks int
	args  []string // of the program: the benchmark's name and flags
	sizes string   // as -m takes them; empty: the benchmark has no sizes
	quick string   // sizes in a quick run; empty: a quick run leaves the experiment out
	tcp   bool     // messages go by TCP
	busy  bool     // a process that computes runs on each core
	kind  kind
}

type kind int

const (
	inside     kind = iota // the program measures
	wholeJob               // the time from the start to the end of the job is measured
	goroutines             // the ranks are goroutines, compared with a channel
)

// noSizes is the value of quick for a benchmark without sizes.
const noSizes = "-"

// experiments lists all experiments: the ones with targets, and harder variants of them.
func experiments() []experiment {
	const (
		curve = "1,8,64,512,1K,4K,8K,16K,32K,64K,256K,1M,4M"
		some  = "8,1K,8K,64K,1M"
		few   = "8,64K"
	)
	all := []experiment{
		{name: "latency", ranks: 2, args: []string{"latency"}, sizes: curve, quick: "8,1K,64K,1M"},
		{name: "bw", ranks: 2, args: []string{"bw"}, sizes: curve, quick: "8,8K,64K,1M"},
		{name: "bibw", ranks: 2, args: []string{"bibw"}, sizes: some},
		{name: "mbw_mr", ranks: 2, args: []string{"mbw_mr"}, sizes: some},
		{name: "platency", ranks: 2, args: []string{"platency"}, sizes: some, quick: "8"},
		{name: isendName, ranks: 2, args: []string{"latency", "--isend"}, sizes: some, quick: "8"},
		{name: "latency, fresh buffers", ranks: 2, args: []string{"latency", "--fresh"}, sizes: some},
		{name: "bw, fresh buffers", ranks: 2, args: []string{"bw", "--fresh"}, sizes: some},
		{name: "latency, 10 % unexpected", ranks: 2, args: []string{"latency", "--unexpected", "10"}, sizes: some},
		{name: "bw, 10 % unexpected", ranks: 2, args: []string{"bw", "--unexpected", "10"}, sizes: some},
		{name: "latency, two communicators", ranks: 2, args: []string{"latency", "--two-comms"}, sizes: some},
		{name: "bw, two communicators", ranks: 2, args: []string{"bw", "--two-comms"}, sizes: some},
		{name: latencyTCP, ranks: 2, args: []string{"latency"}, sizes: curve, quick: "8,1K,64K,1M", tcp: true},
		{name: bwTCP, ranks: 2, args: []string{"bw"}, sizes: curve, quick: "64K,1M", tcp: true},
		// The run takes many time slices.
		{name: latencyBusy, ranks: 2, args: []string{"latency", "-i", "300000"}, sizes: "8", busy: true},
		{name: bwBusy, ranks: 2, args: []string{"bw", "-i", "500"}, sizes: "64K", busy: true},
	}
	for _, ranks := range []int{2, 4, 8} {
		for _, form := range forms() {
			for _, name := range collectives {
				e := experiment{name: form(name), ranks: ranks, args: []string{form(name)}, sizes: collectiveSizes}
				if name == "barrier" {
					e.sizes = ""
				}
				if ranks != 4 && (e.name == "barrier" || e.name == "allreduce") {
					e.quick = "8"
					if e.sizes == "" {
						e.quick = noSizes
					}
				}
				all = append(all, e)
			}
		}
	}
	all = append(all, experiment{name: overlapTCP, ranks: 2, args: []string{"iallreduce"}, sizes: "1M", tcp: true})
	return append(all,
		experiment{name: startName, ranks: 2, args: []string{"empty"}, quick: noSizes, kind: wholeJob},
		experiment{name: startName, ranks: 8, args: []string{"empty"}, kind: wholeJob},
		experiment{name: goroutinesName, ranks: 2, args: []string{"latency"}, sizes: few, quick: "8", kind: goroutines})
}

// collectives lists the collectives that all libraries measure. Never written.
var collectives = []string{"barrier", "bcast", "reduce", "allreduce", "allgather", "alltoall"}

const collectiveSizes = "8,1K,64K,1M"

func blocking(collective string) string    { return collective }
func nonblocking(collective string) string { return "i" + collective }
func persistent(collective string) string  { return collective + "_persistent" }

// forms returns the functions that name the benchmark of a collective in each form.
func forms() []func(collective string) string {
	return []func(string) string{blocking, nonblocking, persistent}
}

// isCollective reports whether an experiment is one of a collective, in any form.
func isCollective(name string) bool {
	return slices.ContainsFunc(forms(), func(form func(string) string) bool {
		return slices.ContainsFunc(collectives, func(c string) bool { return form(c) == name })
	})
}

// split returns an experiment for each size: a run of one size is short, so the contenders' turns
// are close together. sizes, unless empty, replace the sizes of e. It returns e itself if e has at
// most one size, or if contenders do not take turns in it.
func (e experiment) split(sizes []string) []experiment {
	if e.sizes == "" || e.kind == goroutines || e.busy {
		return []experiment{e}
	}
	if len(sizes) == 0 {
		sizes = strings.Split(e.sizes, ",")
	}
	var all []experiment
	for _, e.sizes = range sizes {
		all = append(all, e)
	}
	return all
}

// Names of experiments that other code mentions.
const (
	isendName      = "latency, Isend and Irecv"
	startName      = "start to end of an empty job"
	goroutinesName = "latency between goroutines"
	latencyTCP     = "latency, TCP"
	bwTCP          = "bw, TCP"
	overlapTCP     = "iallreduce, TCP"
	latencyBusy    = "latency, busy machine"
	bwBusy         = "bw, busy machine"
)

// command returns the program's arguments.
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

package comm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mpigo/mpigo/internal/race"
)

// placeOnHosts makes later communicators of a rank treat the ranks of the job as ranks of several
// hosts.
func placeOnHosts(w *Comm, host func(rank int) int) {
	hosts := make([]int, w.job.size)
	for rank := range hosts {
		hosts[rank] = host(rank)
	}
	locked(w, func() int { w.job.hosts = hosts; return 0 })
}

// placements say on which host each rank is.
var placements = map[string]func(rank int) int{
	"by twos":     func(rank int) int { return rank / 2 },
	"by fours":    func(rank int) int { return rank / 4 },
	"in turns":    func(rank int) int { return rank % 2 },
	"one by one":  func(rank int) int { return rank / 3 * rank },
	"out of line": func(rank int) int { return (rank + 1) / 3 },
}

// PlaceOnHosts makes the communicators of w treat its ranks as ranks of several hosts.
func PlaceOnHosts(w *Comm, placement string) { placeOnHosts(w, placements[placement]) }

// hostCalls are the collectives that use shared memory on several hosts.
func hostCalls() []SharedCall { return SharedCalls()[:4] }

// onHosts returns a communicator of the ranks of w as ranks of several hosts, which share memory if
// some host has several of them.
func onHosts(w *Comm, placement, way string) *Comm {
	placeOnHosts(w, placements[placement])
	d := must(w.Dup())
	d.team.SetTuning(sharedTunings[way])
	check(d.Barrier())
	return d
}

// Placements lists the placements.
func Placements() []string { return slices.Sorted(maps.Keys(placements)) }

// TestHostsDoNotChangeResults: sums of floating-point numbers are the same as with one rank on each
// host.
func TestHostsDoNotChangeResults(t *testing.T) {
	counts := []int{1, 60, 700, 3000}
	if race.Brief() {
		counts = counts[:3] // several blocks of 128 bytes, too
	}
	for name := range placements {
		for _, n := range []int{2, 3, 4, 8, 16} {
			if race.Enabled && n > 4 || !race.All() && n != 2 && n != 3 && n != 8 {
				continue
			}
			for _, block := range []string{"128", "64K"} {
				if n == 16 && block == "128" {
					continue // many blocks of many ranks
				}
				t.Run(fmt.Sprintf("%s, %d ranks, blocks of %s", name, n, block), func(t *testing.T) {
					run(t, n, func(w *Comm) {
						random := rand.New(rand.NewPCG(1, uint64(w.Rank())))
						byMessages := must(w.Dup())
						byMessages.team.SetTuning(messagesOnly())
						for _, way := range slices.Sorted(maps.Keys(sharedTunings)) {
							d := onHosts(w, name, way)
							for _, count := range counts {
								in := make([]float32, count)
								for i := range in {
									in[i] = float32(random.NormFloat64() * math.Pow(10, float64(random.IntN(9))))
								}
								for _, opts := range [][]CollOption{nil, {InRankOrder()}} {
									want, got := make([]float32, count), make([]float32, count)
									check(Allreduce(byMessages, in, want, Sum, opts...))
									check(Allreduce(d, in, got, Sum, opts...))
									check(same(fmt.Sprintf("%s: %d", way, count), bits(want), bits(got)))
									copy(got, in)
									check(Allreduce(d, nil, got, Sum, opts...))
									check(same(fmt.Sprintf("%s in place: %d", way, count), bits(want), bits(got)))
									for _, root := range []int{0, n - 1 - n/4} {
										clear(want)
										clear(got)
										check(Reduce(byMessages, in, want, Sum, root, opts...))
										check(Reduce(d, in, got, Sum, root, opts...))
										check(same(fmt.Sprintf("%s: reduce to %d: %d", way, root, count), bits(want), bits(got)))
										copy(got, in)
										mine := in
										if w.Rank() == root {
											mine = nil
										}
										check(Reduce(d, mine, got, Sum, root, opts...))
										if w.Rank() == root {
											check(same(fmt.Sprintf("%s in place: reduce to %d: %d", way, root, count), bits(want), bits(got)))
										}
									}
								}
								for _, root := range []int{0, n - 1 - n/4} {
									got := make([]float32, count)
									if w.Rank() == root {
										copy(got, in)
									}
									want := append([]float32(nil), got...)
									check(errors.Join(Bcast(d, got, root), Bcast(byMessages, want, root)))
									check(same(fmt.Sprintf("%s: bcast of %d from %d", way, count, root), bits(want), bits(got)))
								}
								check(d.Barrier())
							}
							check(d.Free())
						}
					}, WithSetting("coll.shared.bytes", block))
				})
			}
		}
	}
}

// TestOnlyLeadersSendToOtherHosts: ranks that lead no host send no messages, unless a long vector
// is combined by range.
func TestOnlyLeadersSendToOtherHosts(t *testing.T) {
	run(t, 8, func(w *Comm) {
		d := onHosts(w, "by fours", "mixed")
		sent := func() uint64 {
			return locked(w, func() uint64 {
				st := w.job.pml.Stats()
				return st.SentInline + st.SentEager + st.SentRendezvous + st.SentGet
			})
		}
		v, sum := make([]int, 200), make([]int, 200)
		long := make([]int, 400)
		for _, c := range []struct {
			name string
			call func() error
			send []int // the ranks that do
		}{
			{"barrier", d.Barrier, []int{0, 4}},
			{"bcast", func() error { return Bcast(d, v, 3) }, []int{3}},
			{"allreduce", func() error { return Allreduce(d, nil, v, Sum) }, []int{0, 4}},
			{"short allreduce", func() error { return Allreduce(d, nil, v[:1], Sum) }, []int{0, 4}},
			{"reduce", func() error { return Reduce(d, v, sum, Sum, 3) }, []int{7}},
			{"short reduce", func() error { return Reduce(d, v[:1], sum[:1], Sum, 4) }, []int{0}},
			{"reduce in order", func() error { return Reduce(d, v, sum, Sum, 3, InRankOrder()) }, []int{0, 4}},
			{"long allreduce", func() error { return Allreduce(d, nil, long, Sum) }, []int{0, 1, 2, 3, 4, 5, 6, 7}},
		} {
			before := sent()
			check(c.call())
			assert.Equal(t, slices.Contains(c.send, w.Rank()), sent() > before, "%s: rank %d", c.name, w.Rank())
			check(w.Barrier())
		}
	})
}

// TestOperationThatPanicsAtLeaderFailsEveryRank: on several hosts. In a Reduce, only the ranks that
// need the result wait; the others learn of the failure in the next call.
func TestOperationThatPanicsAtLeaderFailsEveryRank(t *testing.T) {
	boom := func(in, inout []int) { panic("boom") }
	for name, call := range map[string]func(d *Comm) error{
		"allreduce": func(d *Comm) error { return Allreduce(d, make([]int, 100), make([]int, 100), boom) },
		"reduce": func(d *Comm) error {
			return errors.Join(Reduce(d, make([]int, 100), make([]int, 100), boom, 3), d.Barrier())
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 4, func(w *Comm) {
				d := onHosts(w, "by twos", "mixed")
				panicked := func() (yes bool) {
					defer func() { yes = recover() != nil }()
					assert.ErrorIs(t, call(d), ErrComm)
					return false
				}()
				assert.ErrorIs(t, d.Barrier(), ErrComm, "rank %d, panicked: %v", w.Rank(), panicked)
				check(w.Barrier())
			})
		})
	}
}

// TestCollectiveByHostGivenUpByContext: the context of a leader ends.
func TestCollectiveByHostGivenUpByContext(t *testing.T) {
	for _, c := range hostCalls() {
		t.Run(c.Name, func(t *testing.T) {
			givenUpByContext(t, 4, c, func(w *Comm) *Comm { return onHosts(w, "by twos", "mixed") })
		})
	}
}

// TestCollectiveByHostWithoutDeadRankFails: a rank is lost, a leader or another one.
func TestCollectiveByHostWithoutDeadRankFails(t *testing.T) {
	for dead := range 4 {
		for _, c := range hostCalls() {
			t.Run(fmt.Sprint(c.Name, " without ", dead), func(t *testing.T) {
				withoutDeadRank(t, dead, c, func(w *Comm) *Comm { return onHosts(w, "by twos", "mixed") })
			})
		}
	}
}

// TestCollectivesByHostAllocateNothing: in the steady state.
func TestCollectivesByHostAllocateNothing(t *testing.T) {
	if race.Brief() { // the tests above make the same calls
		return
	}
	// More than the requests that a rank makes the first time that it waits for long.
	const rounds = 300
	for way := range sharedTunings {
		run(t, 4, func(w *Comm) {
			d := onHosts(w, "by twos", way)
			in, out := make([]float64, 500), make([]float64, 500)
			for what, call := range []func(){
				func() { check(d.Barrier()) },
				func() { check(errors.Join(Bcast(d, out[:1], 0), d.Barrier())) },
				func() { check(errors.Join(Bcast(d, out, 1), d.Barrier())) },
				func() { check(Allreduce(d, in[:1], out[:1], Sum)) },
				func() { check(Allreduce(d, nil, out, Sum)) },
				func() { check(errors.Join(Reduce(d, in, out, Sum, 3), d.Barrier())) },
				func() { check(errors.Join(Reduce(d, in, out, Sum, 3, InRankOrder()), d.Barrier())) },
			} {
				for range 5 {
					call()
				}
				if w.Rank() == 0 {
					assert.Zero(t, testing.AllocsPerRun(rounds, call), "%s, call %d", way, what)
					continue
				}
				for range rounds + 1 {
					call()
				}
			}
		}, WithSetting("progress.sleep", "false"))
	}
}

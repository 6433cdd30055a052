package simulation

import (
	"bytes"
	"flag"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/race"
)

var onlySeed = flag.Uint64("seed", 0, "run only this seed, over all transports, and draw the ladder")

// thousand is the number of seeds over each transport. Those over verbs and TCP take longer.
var thousand = [Transports]uint64{Loop: 1200, Verbs: 300, TCP: 100, Direct: 600}

// No seed breaks an invariant. Over all seeds every kind of fault has an effect, and every
// combination of Possible is reached.
func TestThousandSeedsKeepInvariants(t *testing.T) {
	if *onlySeed != 0 {
		for on := range Transports {
			r := RunTraced(*onlySeed, on, os.Stdout)
			require.Nil(t, r.Failure, "%v", on)
		}
		return
	}
	sum := sweep(t)
	if race.Enabled || !race.All() {
		return // the seeds that ran need not reach everything
	}
	st := sum.Stats
	t.Logf("%d messages, %d events, %d pairs lost, endings %v, %+v", sum.Messages, sum.Events, sum.Lost, sum.Endings, st)
	for what, n := range map[string]uint64{
		"failed": st.RailsFailed / 1000, "returned": st.RailsReturned / 1000, "resent": st.Resent / 500, "restarts": st.Restarts / 500,
		"duplicates": st.Duplicates / 500, "stale": st.StaleFragments, "early": st.Early / 500, "unread": st.Unread, "lost": uint64(sum.Lost / 50),
		"held": st.Throttled / 10, "deferred": st.Deferred / 10, "read": st.SentGet / 500, "written": st.SentPut / 100,
		"inline": st.SentInline / 100, "unexpected": st.Unexpected / 5000, "retries": st.Retries / 500,
		"not registered": uint64(sum.Unregistered / 500), "refused": uint64(sum.Refused / 500), "unwritten": st.Unwritten, "withdrawn": st.Refused / 100, "freed": uint64(sum.Freed / 100), "alternates": uint64(sum.Alternates / 100),
	} {
		require.NotZero(t, n, "%s: %+v", what, st)
	}
	for _, name := range aimed {
		if name == "RNDVRESTARTNACK" { // TestFaultsHitAnswerOfReceiveThatIsGone aims at it
			continue
		}
		for _, fault := range []string{"error-lost", "error-delivered"} {
			require.NotZero(t, sum.Hits[Hit{name, fault}], "fault %[2]s never hit %[1]s", name, fault)
		}
	}
	for e := range Endings {
		require.Greater(t, sum.Endings[e], 50, e)
	}
	for k := doInject; k < kinds; k++ {
		require.NotZero(t, sum.FaultActions[kindNames[k]], kindNames[k])
	}
	var missing []string
	for _, m := range Possible() {
		if sum.Combinations[m] == 0 {
			missing = append(missing, m.String())
		}
	}
	require.Empty(t, missing, "of %d combinations these were not reached", len(Possible()))
}

// sweep runs an eighth of the thousand seeds, or all if tests are to leave out nothing. With the
// race detector it runs a twentieth of them: a simulation has one goroutine.
func sweep(t *testing.T) *Result {
	type job struct {
		seed uint64
		on   Transport
	}
	jobs := make(chan job)
	sum := &Result{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for j := range jobs {
				r := Run(j.seed, j.on)
				if r.Failure != nil {
					t.Errorf("seed %d over %v: %v", j.seed, j.on, r.Failure)
				}
				mu.Lock()
				sum.Add(r)
				mu.Unlock()
			}
		})
	}
	for on := range Transports {
		seeds := thousand[on]
		switch {
		case race.Enabled:
			seeds /= 20
		case !race.All():
			seeds /= 8
		}
		for seed := uint64(1); seed <= seeds && !t.Failed(); seed++ {
			jobs <- job{seed, on}
		}
	}
	close(jobs)
	wg.Wait()
	require.False(t, t.Failed(), "rerun a seed with -seed")
	return sum
}

// Drawing a ladder does not change the trace. TCP is left out, because the kernel has an influence.
func TestSameSeedGivesSameTrace(t *testing.T) {
	for _, on := range []Transport{Loop, Verbs} {
		for seed := uint64(1); seed <= race.Some(uint64(20)); seed++ {
			first, second := Run(seed, on), RunTraced(seed, on, io.Discard)
			require.NotZero(t, first.Events)
			require.Equal(t, [2]uint64{first.Trace, first.Events}, [2]uint64{second.Trace, second.Events}, "seed %d over %v", seed, on)
		}
	}
}

func TestLadderDrawsFragmentsAndFaults(t *testing.T) {
	var b bytes.Buffer
	for seed := uint64(1); seed <= 5; seed++ {
		require.Nil(t, RunTraced(seed, Loop, &b).Failure)
	}
	for _, what := range []string{"rank 0", "rank 1", "──▶", "◀──", "PROBEACK of rail", "RNDV #", "○ ", "heal"} {
		require.Contains(t, b.String(), what)
	}
	for line := range strings.Lines(b.String()) {
		require.Less(t, len([]rune(line)), 400)
	}
}

func TestShrinkRemovesUnrelatedActions(t *testing.T) {
	p := draw(1, Loop)
	sends := func(p *plan) *Failure {
		n, cuts := 0, 0
		for _, a := range p.actions {
			switch a.kind {
			case doSend:
				n++
			case doCut, doAim, doInject:
				cuts++
			}
		}
		if n < 2 || cuts < 1 {
			return nil
		}
		return &Failure{"bytes", "two sends and a fault"}
	}
	s := shrink(p, sends)
	require.NotNil(t, s.Failure)
	require.Equal(t, []int{3, 1}, []int{s.Actions, s.Faults})
	var b bytes.Buffer
	s.Write(&b)
	require.Contains(t, b.String(), "to 3 actions, of which 1 are faults")
	require.Nil(t, shrink(p, func(*plan) *Failure { return nil }).Failure)
}

func TestChangedMessageBreaksInvariant(t *testing.T) {
	w, err := newWorld(draw(1, Loop), false)
	require.NoError(t, err)
	defer w.close()
	r := w.ranks[0]
	r.send(action{kind: doSend, a: 0, b: 0, c: 6 + 10*100})
	w.messages[0].size--
	require.PanicsWithValue(t, failed{"bytes", "rank 0: the buffer of send 0 was overwritten"}, func() { r.done(r.sends[0], nil) })
}

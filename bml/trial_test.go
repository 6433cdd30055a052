package bml

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
)

// load keeps so many fragments under way on a rail of rank 0 that is up, or waiting for room there.
// They are of the rail's full length.
func (w *watched) load(rail, n int) {
	w.ranks[1].got = nil
	rl := &w.pr.rails[rail]
	payload := strings.Repeat("x", rl.sendBytes-testHeaderBytes)
	for rl.state == railUp && int(rl.meter.underWay())+rl.queue.Len() < n {
		w.ranks[0].post(rl, w.ranks[0].op(payload))
	}
}

// A slow rail that is fast again is used again although the other one always has a queue: TRIALs
// wait for room there.
func TestSlowRailReturnsBesideLoadedOne(t *testing.T) {
	rail := loop.RailConfig{BandwidthMBps: 100, LatencyNanos: 10_000}
	w := newWatched(t, 10*sec, rail, rail)
	w.pr.becomesSlow(&w.pr.rails[1])
	w.ranks[0].prefer(w.pr)
	w.load(0, 100)
	w.until(t, "the rail that is fast", func() bool {
		w.load(0, 100)
		require.False(t, w.pr.rails[0].queue.Empty())
		require.False(t, w.pr.slow.Has(0))
		return !w.pr.slow.Has(1)
	}, 0, 1)
	require.Less(t, w.fabric.Now(), 2*sec)
}

// A rail is not slow because its TRIALs wait for what else it carries, while another one is idle.
func TestLoadedRailIsNotSlow(t *testing.T) {
	rail := loop.RailConfig{BandwidthMBps: 100, LatencyNanos: 10_000}
	for _, perByte := range []int64{1, 20} {
		w := newWatched(t, 10*sec, rail, rail)
		for range 300 { // the other one is known
			w.load(1, 10)
			w.run(msec, 0, 1)
		}
		link := loop.Impairment{PerByte: perByte}
		require.NoError(t, w.fabric.ImpairLink(loop.Port{}, loop.Port{Rank: 1}, link))
		for range 400 {
			w.load(0, 40)
			w.pr.rails[0].grade.bad = badTicks // TRIALs decide
			w.run(msec, 0, 1)
			if w.pr.slow.Has(0) {
				break
			}
		}
		require.Equal(t, perByte > 1, w.pr.slow.Has(0), "%d times as long for a byte", perByte)
	}
}

// A rail whose link promises a tenth of another one's is fast if it keeps that promise.
func TestRailOfSlowerLinkReturns(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{BandwidthMBps: 200}, loop.RailConfig{BandwidthMBps: 20})
	w.pr.becomesSlow(&w.pr.rails[1])
	for range 1000 {
		w.ranks[0].send(1, "short")
		for range 100 {
			w.ranks[0].eng.Turn()
			w.ranks[1].eng.Turn()
			w.fabric.AdvanceTo(w.fabric.Now() + msec/100)
		}
	}
	require.Zero(t, w.pr.slow)
}

// The time of a TRIAL begins when an endpoint takes its first fragment, and what is under way then
// is ahead of it.
func TestTrialBeginsWhenItIsPosted(t *testing.T) {
	w, pr := slowWire(t)
	r, m := w.ranks[0], &pr.rails[0].meter
	w.rails[0][0].full = true
	r.tryRail(&pr.rails[0], trialBytes, 1)
	require.Zero(t, m.trial.posted)
	w.pass(7 * msec)
	require.Zero(t, m.trial.posted)
	w.rails[0][0].full = false
	w.pass(msec)
	require.Equal(t, trialFragments, m.trial.posted)
	require.Equal(t, 7*msec, m.trial.begin)
	require.Zero(t, m.trial.ahead)
	require.True(t, m.trial.isAlone)

	w, pr = slowWire(t)
	r, m = w.ranks[0], &pr.rails[0].meter
	w.rails[0][0].full = true
	r.tryRail(&pr.rails[0], 0, 1)
	r.begin(&pr.rails[0], r.op("what waited before it"))
	require.Zero(t, m.trial.posted)

	w, pr = slowWire(t)
	r, m = w.ranks[0], &pr.rails[0].meter
	r.send(1, "ahead")
	r.tryRail(&pr.rails[0], 0, 1)
	require.EqualValues(t, testHeaderBytes+len("ahead"), m.trial.ahead)
	require.False(t, m.trial.isAlone)
}

// What a TRIAL waits for is taken off at the rate of the best other rail that is up, or at the
// rail's own if that is all there is.
func TestLoadIsTakenOff(t *testing.T) {
	_, pr := threeRails(t)
	usual := func(picos ...int64) int64 {
		for i := range picos {
			pr.rails[i].meter.long.usual = picos[i]
		}
		return pr.loadNanos(&pr.rails[0], 1000)
	}
	require.Zero(t, usual(0, 0, 0))
	require.EqualValues(t, 9, usual(9, 0, 0))
	require.EqualValues(t, 4, usual(9, 4, 0))
	require.EqualValues(t, 4, usual(3, 4, 5))
	require.EqualValues(t, 4, usual(9, 5, 4))
	pr.up = 0b011
	require.EqualValues(t, 5, usual(9, 5, 4))
}

// An answer to a TRIAL that was not posted, or to an earlier one, is no sample.
func TestOtherAnswersAreNoSamples(t *testing.T) {
	w, pr := slowWire(t)
	m := &pr.rails[0].meter
	ack := func(number uint32) int {
		w.arrive(0, 1, 0, TagTrialAck, railMessage(railHeader{counters: deliveryCounters{delivered: number}}))
		return m.trialTimes.n
	}
	require.Zero(t, ack(0))
	w.rails[0][0].full = true
	w.ranks[0].tryRail(&pr.rails[0], 0, 1)
	require.Zero(t, ack(m.trial.number))
	w.rails[0][0].full = false
	w.pass(msec)
	require.Zero(t, ack(m.trial.number+1))
	number := m.trial.number
	require.Equal(t, 1, ack(number))
	require.Equal(t, 1, ack(number), "it was answered twice")
	require.Equal(t, 1, ack(0), "no TRIAL waits for an answer")
}

// Each TRIAL has another number, so that a late answer to an earlier one says nothing. None is sent
// while fragments of the last one are under way.
func TestTrialsHaveNumbers(t *testing.T) {
	w, pr := slowWire(t)
	r, rl := w.ranks[0], &pr.rails[0]
	r.tryRail(rl, 0, 1)
	first := rl.meter.trial.number
	w.settle()
	r.tryRail(rl, 0, 1)
	require.NotEqual(t, first, rl.meter.trial.number)
	require.NotZero(t, first)
	w.settle()
	rl.meter.fragments = 1
	r.tryRail(rl, 0, 1)
	require.Empty(t, w.flying)
}

// A TRIAL of a rail that is unknown, came by another rail, or is of one that is not up, is not
// answered, and an answer about such a rail is no sample.
func TestTrialsOfOtherRails(t *testing.T) {
	w, pr := slowWire(t)
	w.mended = false
	w.rails[1][0].lose(1, pathError(1))
	w.flying = nil
	about := func(rail uint8) railHeader {
		return railHeader{sender: rail, receiver: rail, counters: deliveryCounters{delivered: 7}}
	}
	for _, c := range []struct {
		by, rail int
		answers  int
	}{{0, 9, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {0, 0, 1}} {
		for i := range pr.rails {
			pr.rails[i].meter.trial = trial{number: 7, posted: 1}
		}
		w.arrive(c.by, 1, 0, TagTrial, railMessage(about(uint8(c.rail))))
		require.Len(t, w.on(TagTrialAck), c.answers, "%+v", c)
		w.arrive(c.by, 1, 0, TagTrialAck, railMessage(about(uint8(c.rail))))
		require.Equal(t, c.answers, pr.rails[0].meter.trialTimes.n, "%+v", c)
	}
	require.True(t, pr.IsAlive())
}

// Only a short TRIAL that met nothing else shows how long a short operation takes.
func TestTrialsAsShortOperations(t *testing.T) {
	for _, c := range []struct {
		bytes    int
		isLoaded bool
		want     int
	}{{0, false, 1}, {0, true, 0}, {trialBytes, false, 0}} {
		w, pr := slowWire(t)
		r, m := w.ranks[0], &pr.rails[0].meter
		if c.isLoaded {
			r.post(&pr.rails[0], r.op("load"))
			m.timed = nil
		}
		r.tryRail(&pr.rails[0], c.bytes, 1)
		w.settle()
		require.Equal(t, c.want, m.short.n, "%+v", c)
	}
}

// A TRIAL that was delivered has time to be answered. Then the peer is late, and another one
// follows.
func TestTrialWithoutAnswer(t *testing.T) {
	w, pr := slowWire(t)
	r, rl := w.ranks[0], &pr.rails[0]
	for ticks, late := range map[int]uint64{trialTicks: 0, trialTicks + 1: 1} {
		pr.watch.count, rl.errors, w.flying = 50+ticks, railErrors{}, nil
		rl.meter.trial = trial{number: 7, tick: 50}
		r.tryRail(rl, 0, 1)
		require.Len(t, w.on(TagTrial), int(late), "after %d ticks", ticks)
		require.Equal(t, late, rl.errors.remote.Timeout)
		rl.meter.fragments = 0
	}
}

// A TRIAL has as many fragments as its bytes need, but at least one, and no more than
// trialFragments.
func TestFragmentsOfTrial(t *testing.T) {
	for _, c := range []struct{ bytes, fragments, length int }{
		{0, 1, 0}, {1, 1, 1}, {104, 1, 104}, {105, 2, 208}, {208, 2, 208}, {209, 3, 312},
		{104 * trialFragments, trialFragments, 104 * trialFragments}, {trialBytes, trialFragments, 104 * trialFragments},
	} {
		w, pr := slowWire(t)
		require.Equal(t, 104, pr.rails[0].sendBytes-railBytes)
		w.ranks[0].tryRail(&pr.rails[0], c.bytes, 1)
		require.Len(t, w.on(TagTrial), c.fragments, "%+v", c)
		require.Equal(t, c.length, pr.rails[0].meter.trial.length, "%+v", c)
	}
}

// A long TRIAL shows how long a byte takes, of its own or ahead of it, and how much longer than
// promised it took, with and without its wait for the load.
func TestTimesOfLongTrial(t *testing.T) {
	w, pr := slowWire(t)
	m := &pr.rails[0].meter
	pr.rails[1].meter.long.usual = 2000 // picoseconds
	w.ranks[0].send(1, "12345")         // 21 bytes with its header
	w.ranks[0].tryRail(&pr.rails[0], 1040, 1)
	w.now += 7000
	number := m.trial.number
	w.arrive(0, 1, 0, TagTrialAck, railMessage(railHeader{counters: deliveryCounters{delivered: number}}))
	require.EqualValues(t, 7000*1000/(21+1040), m.longTrials.least(1))
	require.EqualValues(t, 7000-1040, m.loadedTimes.least(1))
	require.EqualValues(t, 7000-1040-2*21, m.trialTimes.least(1))
}

// A link that promises nothing, as one of unknown speed, can have TRIALs.
func TestTrialWithoutBandwidth(t *testing.T) {
	w, pr := slowWire(t)
	w.attrs[0].BandwidthMBps = 0
	require.EqualValues(t, 5000, nanosOf(&pr.rails[0], 5))
}

// No time is 0, which means that it is not known, or less, as if a TRIAL waited less than its load
// lets expect.
func TestTimesArePositive(t *testing.T) {
	for _, sample := range []int64{0, -5} {
		var times timing
		times.add(sample)
		require.EqualValues(t, 1, times.least(1))
		times.tick()
		require.EqualValues(t, 1, times.usual)
	}
}

package bml

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
)

// The rules of watch.go, one at a time: what a tick looks at, and what it does not.

// threeRails is a rank with three rails to a peer, whose operations the test delivers.
func threeRails(t *testing.T) (w *wire, pr *Peer) {
	w = newWire(t, 2, withRails(3), withGrace(10*sec), mended)
	resolve(w)
	return w, w.ranks[0].Peer(1)
}

// sampled gives rails samples of a kind of operation: one for each rail, in nanoseconds or
// picoseconds; 0: none.
func sampled(pr *Peer, of func(m *meter) []*timing, samples ...int64) {
	for i, s := range samples {
		for _, t := range of(&pr.rails[i].meter) {
			t.n = 0
			if s > 0 {
				t.add(s)
			}
		}
	}
}

func shorts(m *meter) []*timing { return []*timing{&m.short} }
func longs(m *meter) []*timing  { return []*timing{&m.long} }
func trials(m *meter) []*timing { return []*timing{&m.trialTimes, &m.loadedTimes} }

// The first tick after a pause looks at what was posted since, and not at what was before.
func TestWatchStartsAnew(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	w.pass(sec)
	for i := range pr.rails {
		m := &pr.rails[i].meter
		m.oldest = oldest{ticks: 5}
		m.short.left, m.long.left, m.trialTimes.left = 0, 0, 0
		m.deliveredBytes = 100
	}
	r.send(1, "a")
	require.NotNil(t, pr.watch.timer)
	require.Equal(t, w.now, pr.watch.at, "the first tick takes this rank for away")
	require.True(t, pr.watch.isBusy)
	require.EqualValues(t, 200, pr.spread.before)
	for i := range pr.rails {
		m := &pr.rails[i].meter
		require.Equal(t, oldest{upTo: m.posted, posts: pr.posts}, m.oldest)
		require.Equal(t, []int{samplesPerTick, samplesPerTick, samplesPerTick}, []int{m.short.left, m.long.left, m.trialTimes.left})
	}
}

// A tick ends what each kind of operation has shown, and counts from then on.
func TestTickTakesSamplesOnce(t *testing.T) {
	w, pr := slowWire(t)
	w.ranks[0].send(1, "a")
	sampled(pr, shorts, 1000, 1000)
	sampled(pr, longs, 1000, 1000)
	sampled(pr, trials, 1000, 1000)
	sampled(pr, func(m *meter) []*timing { return []*timing{&m.longTrials} }, 1000, 1000)
	w.pass(60 * msec)
	for i := range pr.rails {
		m := &pr.rails[i].meter
		for _, s := range []*timing{&m.short, &m.long, &m.trialTimes, &m.loadedTimes, &m.longTrials} {
			require.Zero(t, s.n)
			require.EqualValues(t, 1000, s.usual)
		}
	}
}

// A rank that made no progress calls does not use what it has timed meanwhile: its own absence is
// in it.
func TestRankThatWasAwayForgetsTimes(t *testing.T) {
	for _, nanos := range []int64{tickPeriod.Nanoseconds(), 3 * tickPeriod.Nanoseconds(), 3*tickPeriod.Nanoseconds() + 1} {
		w, pr := slowWire(t)
		w.ranks[0].send(1, "a")
		sampled(pr, shorts, 1000, 1000)
		sampled(pr, longs, 4000, 1000)
		sampled(pr, trials, 1000, 1000)
		sampled(pr, func(m *meter) []*timing { return []*timing{&m.longTrials} }, 1000, 1000)
		w.now += nanos
		w.pass(msec)
		isAway := nanos > 3*tickPeriod.Nanoseconds()
		for i := range pr.rails {
			m := &pr.rails[i].meter
			for _, usual := range []int64{m.short.usual, m.long.usual, m.trialTimes.usual, m.loadedTimes.usual, m.longTrials.usual} {
				require.Equal(t, isAway, usual == 0)
			}
		}
		require.Equal(t, isAway, pr.rails[0].grade.slowness == 1)
	}
}

// The ticks end when one rail is left, and when the peer is given up, whatever is under way.
func TestTicksEnd(t *testing.T) {
	for name, end := range map[string]func(w *wire, r *testRank, pr *Peer){
		"one rail": func(w *wire, r *testRank, pr *Peer) { w.rails[1][0].lose(1, pathError(1)) },
		"failing":  func(w *wire, r *testRank, pr *Peer) { r.Fail(pr, btl.ErrInjected) },
		"closed":   func(w *wire, r *testRank, pr *Peer) { r.Close(btl.ErrClosed) },
	} {
		w, pr := slowWire(t)
		w.mended = false
		r := w.ranks[0]
		r.send(1, "a")
		require.NotNil(t, pr.watch.timer)
		end(w, r, pr)
		count := pr.watch.count
		w.pass(200 * msec)
		require.Nil(t, pr.watch.timer, name)
		require.Equal(t, count, pr.watch.count, name)
	}
}

// A rail that has failed is not late, whatever it has under way.
func TestFailedRailIsNotLate(t *testing.T) {
	w, pr := threeRails(t)
	w.ranks[0].send(1, "stuck")
	w.rails[0][0].fail(1, pathError(0)) // it is not drained
	for range 20 {
		w.deliverOn(1, 25*msec)
	}
	require.Equal(t, railFailing, pr.rails[0].state)
	require.Zero(t, pr.rails[0].grade.late)
	require.Zero(t, pr.slow)
}

// A rail that delivers all in time, and is as fast as the others, causes no TRIALs, except for the
// comparison now and then.
func TestGoodRailsAreNotTried(t *testing.T) {
	w, pr := slowWire(t)
	for n := range 3 * compareTicks {
		for i := range pr.rails {
			w.ranks[0].post(&pr.rails[i], w.ranks[0].op("a"))
		}
		require.Empty(t, w.on(TagTrial))
		w.pass(10 * msec)
		for len(w.flying) > 0 {
			require.NotEqual(t, TagTrial, w.flying[0].tag)
			w.step(0)
		}
		sampled(pr, shorts, 1000, 1000)
		w.pass(40 * msec)
		isTime := pr.watch.count > 0 && pr.watch.count%compareTicks == 0
		require.Equal(t, isTime, pr.watch.isComparing, "tick %d", n)
	}
	require.Greater(t, pr.watch.count, compareTicks)
}

// A slow rail that is late again proves itself anew if it had begun to. One that has not is not to
// be fast for longer each tick.
func TestSlowRailThatIsLateProvesItselfAnew(t *testing.T) {
	for good, need := range map[int]int{0: 8, 3: 16} {
		_, pr := slowWire(t)
		rl := &pr.rails[0]
		pr.becomesSlow(rl)
		require.Equal(t, 8, rl.grade.need)
		rl.grade.good = good
		rl.meter.oldest = oldest{ticks: 1000}
		pr.rails[1].meter.delivered = 1
		for range 2 {
			pr.findLate()
		}
		require.EqualValues(t, 2, rl.grade.late)
		require.Zero(t, rl.grade.good)
		require.Equal(t, need, rl.grade.need)
		require.True(t, rl.grade.isLate)
		rl.meter.oldest = oldest{}
		pr.findLate()
		require.False(t, rl.grade.isLate, "its operations have ended")
	}
}

// A rail overtakes another one if it is up and has delivered what was posted after that one's
// oldest operations. The rail that takes fewest ticks counts, by what it has under way now or had
// before.
func TestOvertaking(t *testing.T) {
	_, pr := threeRails(t)
	pr.rails[0].meter.oldest.posts = 5
	set := func(i int, delivered uint64, ticks, last int) {
		pr.rails[i].meter.delivered = delivered
		pr.rails[i].meter.oldest.ticks, pr.rails[i].meter.oldest.last = ticks, last
	}
	require.Equal(t, -1, pr.overtaking(0))
	set(0, 9, 7, 7)
	require.Equal(t, -1, pr.overtaking(0), "the rail itself")
	set(1, 5, 1, 1)
	require.Equal(t, -1, pr.overtaking(0), "what was posted before")
	set(1, 6, 3, 1)
	require.Equal(t, 3, pr.overtaking(0))
	set(2, 6, 0, 2)
	require.Equal(t, 2, pr.overtaking(0))
	set(2, 6, 4, 2)
	require.Equal(t, 3, pr.overtaking(0))
	set(1, 6, 0, 0)
	require.Zero(t, pr.overtaking(0))
	pr.up &^= 0b010
	require.Equal(t, 4, pr.overtaking(0), "of a rail that is not up")
}

// A late rail fails in the tick in which its operations have waited for failTicks, and for
// otherTicks more for each tick that the others take.
func TestTicksUntilLateRailFails(t *testing.T) {
	for others := range 3 {
		w, pr := slowWire(t)
		r := w.ranks[0]
		rl := &pr.rails[0]
		r.post(rl, r.op("stuck"))
		rl.grade.isLate, rl.grade.others = true, others
		rl.meter.oldest.ticks = failTicks + otherTicks*others - 1
		r.leaveLate(pr)
		require.Equal(t, railUp, rl.state)
		rl.meter.oldest.ticks++
		r.leaveLate(pr)
		require.Equal(t, railFailing, rl.state)
		require.Zero(t, w.inside)
	}
}

// A slow rail is judged by its TRIALs alone: what else it carries is too little, or old.
func TestSlowRailIsJudgedByTrials(t *testing.T) {
	_, pr := slowWire(t)
	rl := &pr.rails[0]
	pr.becomesSlow(rl)
	sampled(pr, shorts, 1000, 1000)
	sampled(pr, longs, 1000, 1000)
	pr.b.compare(pr)
	require.Zero(t, rl.grade.good)
	sampled(pr, shorts, sec, 1000)
	sampled(pr, trials, 1000, 1000)
	pr.b.compare(pr)
	require.Equal(t, 1, rl.grade.good)
	sampled(pr, longs, 1000_000, 1)
	pr.b.compare(pr)
	require.EqualValues(t, 1, rl.grade.slowness)
}

// Rails that are not up are neither compared nor compared with.
func TestOnlyRailsThatAreUpAreCompared(t *testing.T) {
	w, pr := threeRails(t)
	w.rails[2][0].lose(1, pathError(2))
	require.EqualValues(t, 0b011, pr.up)
	sampled(pr, shorts, 10*msec, 10*msec, 1)
	sampled(pr, longs, 9000, 9000, 1)
	for range badTicks {
		pr.b.compare(pr)
	}
	require.Zero(t, pr.rails[0].grade.bad)
	require.EqualValues(t, 1, pr.rails[0].grade.slowness)
	sampled(pr, shorts, 1000, 1000, 10*msec)
	sampled(pr, longs, 1000, 1000, 9000)
	pr.b.compare(pr)
	require.Zero(t, pr.rails[2].grade.bad)
	require.EqualValues(t, 1, pr.rails[2].grade.slowness)
}

// The best of the other rails counts, whatever its place.
func TestRailIsComparedWithTheBest(t *testing.T) {
	for _, times := range [][]int64{{10 * msec, 1000, 5 * msec}, {10 * msec, 5 * msec, 1000}} {
		_, pr := threeRails(t)
		sampled(pr, trials, times...)
		require.Greater(t, pr.slowness(0, trialTimes, trialTimes), 100.0)
	}
}

// If all rails that are up are slow, the one with the fastest TRIAL is not, whatever its place.
func TestFastestOfSlowRailsIsUsed(t *testing.T) {
	for fastest := range 3 {
		for _, down := range []int{-1, 0, 1, 2} {
			if down == fastest {
				continue
			}
			w, pr := threeRails(t)
			for i := range pr.rails {
				pr.becomesSlow(&pr.rails[i])
			}
			samples := []int64{5 * msec, 6 * msec, 5 * msec}
			samples[fastest] = msec
			if down >= 0 {
				samples[down] = 1000
				w.rails[down][0].lose(1, pathError(down))
			}
			for i := range pr.rails {
				pr.slow |= 1 << i
			}
			sampled(pr, trials, samples...)
			pr.b.compare(pr)
			require.EqualValues(t, RailSet(0b111)&^(1<<fastest), pr.slow, "fastest %d, down %d", fastest, down)
		}
	}
}

// Only ticks in a row count: against a rail, and for the time since it was slow.
func TestTicksInARowCount(t *testing.T) {
	var g grade
	for range 5 {
		g.tick(slowFactor, false)
		g.tick(slowFactor, false)
		require.False(t, g.isSuspect())
		g.tick(1, false)
	}
	require.Zero(t, g.good, "a rail that is not slow proves nothing")
	g = grade{need: 16}
	for range 3 {
		for range calmTicks - 1 {
			g.tick(1, false)
		}
		g.tick(slowFactor, true)
	}
	require.Equal(t, 16, g.need)
	for range calmTicks {
		g.tick(1, false)
	}
	require.Equal(t, 8, g.need)
}

// Ticks without long operations do not change a rail's share, and its credit is bounded.
func TestSlownessOfLongOperations(t *testing.T) {
	g := grade{slowness: 3}
	for range 10 {
		g.takeLong(0)
	}
	require.EqualValues(t, 3, g.slowness)
	for range 1000 {
		g.takeLong(0.001)
	}
	require.InDelta(t, leastSlowness, g.slowness, 0.01)
}

// TRIALs go by rails that are up. Without a rail in doubt, only a rail that carries nothing is
// tried, when the rails are compared.
func TestWhichRailsAreTried(t *testing.T) {
	tried := func(w *wire, pr *Peer) (set RailSet) {
		w.ranks[0].tryRails(pr)
		for _, f := range w.on(TagTrial) {
			set |= 1 << f.rail
		}
		w.flying = nil
		for i := range pr.rails {
			pr.rails[i].meter = meter{}
		}
		return set
	}
	w, pr := threeRails(t)
	require.Zero(t, tried(w, pr))
	pr.watch.isComparing = true
	require.EqualValues(t, 0b111, tried(w, pr))
	w.ranks[0].post(&pr.rails[1], w.ranks[0].op("under way"))
	pr.rails[0].meter.short.add(1000)
	require.EqualValues(t, 0b100, tried(w, pr))
	w.mended = false
	w.rails[2][0].lose(1, pathError(2))
	w.flying, pr.rails[0].meter = nil, meter{} // without the RAILDOWN
	require.EqualValues(t, 0b011, tried(w, pr))
	pr.watch.isComparing = false
	pr.rails[0].meter.short.add(1000)
	pr.becomesSlow(&pr.rails[1])
	require.EqualValues(t, 0b011, tried(w, pr), "of two rails, one in doubt")
	pr.slow = 0b100
	require.Zero(t, tried(w, pr), "a rail in doubt that is not up")
}

// A rail that is up and takes no traffic, as one of a later tier, is not tried.
func TestSpareRailIsNotTried(t *testing.T) {
	w, pr := threeRails(t)
	pr.rails[2].tier = 1
	w.ranks[0].prefer(pr)
	require.EqualValues(t, 0b011, pr.up)
	pr.becomesSlow(&pr.rails[0])
	pr.watch.isComparing = true
	w.ranks[0].tryRails(pr)
	for _, f := range w.on(TagTrial) {
		require.NotEqual(t, 2, f.rail)
	}
	require.NotEmpty(t, w.flying)
}

// A rail that took exactly slowFactor times as long is slower by that, one that took fastFactor
// times as long is not fast, and one that took shareFactor times as long keeps its share.
func TestFactorsAreBounds(t *testing.T) {
	g := grade{slowness: 1}
	g.tick(slowFactor, false)
	require.Equal(t, 1, g.bad)
	g.tick(fastFactor, true)
	require.Zero(t, g.good)
	g.tick(fastFactor-0.01, true)
	require.Equal(t, 1, g.good)

	_, pr := slowWire(t)
	rl := &pr.rails[0]
	rl.grade.slowness = shareFactor
	rl.weigh()
	require.EqualValues(t, 1000, rl.weight)
	rl.grade.slowness = shareFactor + 0.01
	rl.weigh()
	require.EqualValues(t, 662, rl.weight)

	rl.grade = grade{slowness: 1, bad: badTicks - 1}
	sampled(pr, shorts, 3*shortAllowance, 0)
	sampled(pr, trials, 3*shortAllowance, 0)
	pr.rails[1].meter.short.n, pr.rails[1].meter.trialTimes.n = 1, 1 // of no length
	pr.b.compare(pr)
	require.EqualValues(t, 0b01, pr.slow, "both times are slowFactor times as long")
}

// Operations with little under way are timed as short ones, those with much as long ones, others
// not at all, and no more than samplesPerTick of a kind in a tick.
func TestWhichOperationsAreTimed(t *testing.T) {
	for _, c := range []struct{ bytes, shorts, longs int64 }{
		{1, 1, 0}, {shortBytes, 1, 0}, {shortBytes + 1, 0, 0}, {longBytes - 1, 0, 0}, {longBytes, 0, 1},
	} {
		m := meter{bytes: c.bytes}
		require.False(t, m.isTimed())
		m.short.left, m.long.left = 1, 1
		require.Equal(t, c.shorts+c.longs > 0, m.isTimed(), "%+v", c)
		require.EqualValues(t, []int64{1 - c.shorts, 1 - c.longs}, []int64{int64(m.short.left), int64(m.long.left)}, "%+v", c)
	}
	m := meter{timedBytes: longBytes - 1}
	m.sample(7000)
	require.EqualValues(t, 7000, m.short.least(m.short.n))
	m.timedBytes = longBytes
	m.sample(longBytes)
	require.EqualValues(t, 1000, m.long.least(m.long.n))
	require.Equal(t, []int{1, 1}, []int{m.short.n, m.long.n})
}

// What is being timed stays so while another operation is refused. The last operation that was
// delivered is the one that was posted last, in whatever order they end.
func TestOperationsThatEndInOtherOrder(t *testing.T) {
	w, pr := slowWire(t)
	for _, payload := range []string{"first", "timed", "third"} {
		w.ranks[0].send(1, payload)
	}
	m := &pr.rails[0].meter
	timed := m.timed
	require.NotNil(t, timed)
	w.refuse = 1
	w.ranks[0].send(1, "refused")
	require.Same(t, timed, m.timed)
	w.step(2)
	last := m.delivered
	require.EqualValues(t, 3, last)
	w.step(0)
	require.Equal(t, last, m.delivered)
}

// A rail is late from lateTicks on, and later if the rail that delivers soonest takes some ticks.
func TestRailIsLateAfterTicks(t *testing.T) {
	for _, c := range []struct {
		ticks, others int
		isLate        bool
	}{{lateTicks - 1, 0, false}, {lateTicks, 0, true}, {lateTicks + otherTicks - 1, 1, false}, {lateTicks + otherTicks, 1, true}} {
		_, pr := slowWire(t)
		pr.rails[0].meter.oldest.ticks = c.ticks
		pr.rails[1].meter.delivered, pr.rails[1].meter.oldest.last = 1, c.others
		pr.findLate()
		require.Equal(t, c.isLate, pr.rails[0].grade.isLate, "%+v", c)
	}
}

// What waits for room on the first rail stays there while that rail is late, and its age counts on.
func TestQueueOfLateFirstRailGrowsOlder(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	w.rails[0][0].full = true
	op := r.op("queued")
	r.Send(pr, op)
	pr.watch.count, pr.rails[0].grade.isLate = 3, true
	require.Same(t, &pr.rails[0], pr.first)
	r.leaveLate(pr)
	require.Zero(t, op.queuedAt)
	require.Same(t, op, pop(&pr.rails[0].queue))
}

// A rail that was late, and is out of use since, does not fail once more.
func TestLateRailThatIsOutOfUseStays(t *testing.T) {
	w, pr := threeRails(t)
	r := w.ranks[0]
	rl := &pr.rails[2]
	r.post(rl, r.op("stuck"))
	rl.grade.isLate, rl.meter.oldest.ticks = true, 1000
	rl.tier = 1 // spare
	r.prefer(pr)
	require.EqualValues(t, 0b011, pr.up)
	r.leaveLate(pr)
	require.Equal(t, railUp, rl.state)
	require.Len(t, w.on(tagNumbered), 1)
}

// A rail that is fast again has its full share of long messages, until those show something else.
func TestFastRailHasFullShare(t *testing.T) {
	_, pr := slowWire(t)
	rl := &pr.rails[0]
	rl.grade.slowness = 8
	pr.becomesSlow(rl)
	rl.grade.good = rl.grade.need
	pr.b.compare(pr)
	require.Zero(t, pr.slow)
	pr.b.compare(pr)
	require.Equal(t, pr.rails[1].weight, rl.weight)
}

// A rail whose link promises nothing is slow, too, if long operations take too long.
func TestRailOfUnknownBandwidthIsSlow(t *testing.T) {
	w := newWire(t, 2, withRails(2), withGrace(10*sec), func(w *wire) {
		for i := range w.attrs {
			w.attrs[i].BandwidthMBps = 0
		}
	})
	resolve(w)
	pr := w.ranks[0].Peer(1)
	sampled(pr, longs, 9000, 1000)
	sampled(pr, trials, 9*msec, msec)
	for range badTicks {
		require.Zero(t, pr.slow)
		pr.b.compare(pr)
	}
	require.EqualValues(t, 0b01, pr.slow)
}

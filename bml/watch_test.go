package bml

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/loop"
)

// exchange has rank 0 send a short message every millisecond. It returns how many rank 1 got.
func (w *watched) exchange(millis int) int {
	before := len(w.ranks[1].got)
	for range millis {
		w.ranks[0].send(1, "short")
		w.run(msec, 0, 1)
	}
	return len(w.ranks[1].got) - before
}

// Short messages leave a rail whose latency grows, and return when it is as it was.
func TestSlowRailTakesNoTraffic(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	w.exchange(1000)
	require.True(t, w.pr.first == &w.pr.rails[0] && w.pr.slow == 0, "rails of the same latency")

	require.NoError(t, w.fabric.SetLatency(0, 10*msec))
	w.exchange(1500)
	require.True(t, w.pr.first == &w.pr.rails[1] && w.pr.slow == 0b01, "after 1.5 s with 10 ms")
	require.Equal(t, 100, w.exchange(100), "messages in 100 ms")
	require.Zero(t, w.ranks[0].Stats().RailsFailed)
	tr := &Transfer{peer: w.pr}
	require.EqualValues(t, 0b10, tr.rails(Fragments), "pieces of long messages")

	require.NoError(t, w.fabric.SetLatency(0, 0))
	w.exchange(1000)
	require.True(t, w.pr.first == &w.pr.rails[0] && w.pr.slow == 0, "1 s after it is fast again")
}

// What is under way on a rail that does not deliver goes by another one, soon.
func TestLateRailFails(t *testing.T) {
	w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
	w.exchange(500)
	sent := len(w.ranks[0].sent)
	require.NoError(t, w.fabric.SetLatency(0, 60*sec))
	require.Less(t, w.exchange(100), 100)
	require.Greater(t, w.exchange(400), 450, "messages were not moved")
	require.EqualValues(t, 1, w.ranks[0].Stats().RailsFailed)
	require.ErrorContains(t, w.pr.rails[0].recovery.cause, "slow")
	w.exchange(500)
	require.Len(t, w.ranks[0].sent, sent+1000)
	require.NotZero(t, w.ranks[0].Rails()[0].Late)

	require.NoError(t, w.fabric.SetLatency(0, 0))
	w.exchange(5000)
	require.Equal(t, railUp, w.pr.rails[0].state)
	require.True(t, w.pr.slow == 0 && w.pr.first == &w.pr.rails[0], "5 s after it is fast again")
}

// slowWire is a rank with two rails to a peer, whose operations the test delivers.
func slowWire(t *testing.T) (w *wire, pr *Peer) {
	w = newWire(t, 2, withRails(2), withGrace(10*sec), mended)
	resolve(w)
	return w, w.ranks[0].Peer(1)
}

// A peer that takes nothing on any rail makes no rail late, and gets one TRIAL from each rail that
// carries nothing.
func TestStoppedPeerMakesNoRailLate(t *testing.T) {
	w, pr := slowWire(t)
	w.ranks[0].send(1, "waits")
	w.pass(150 * msec)
	require.Len(t, w.flying, 2)
	w.pass(10 * sec)
	require.Zero(t, pr.slow)
	require.Equal(t, []railState{railUp, railUp}, []railState{pr.rails[0].state, pr.rails[1].state})
	require.Len(t, w.flying, 2)
	require.EqualValues(t, 1, w.flying[1].rail)
	require.Equal(t, TagTrial, w.flying[1].tag)

	w.step(1) // the peer takes the TRIAL, but not what was sent before
	w.pass(500 * msec)
	require.NotEqual(t, railUp, pr.rails[0].state, "the rail, and not the peer, was at fault")
}

// A rank that made no progress calls itself learns nothing from the time that has passed.
func TestRankThatWasAwayMakesNoRailLate(t *testing.T) {
	w, pr := slowWire(t)
	w.ranks[0].send(1, "first")
	w.pass(60 * msec)
	require.NotNil(t, pr.watch.timer)
	w.now += 5 * sec
	w.ranks[0].post(&pr.rails[1], w.ranks[0].op("second"))
	w.step(1)
	w.pass(40 * msec)
	require.Zero(t, pr.slow)
	require.Zero(t, pr.rails[0].meter.oldest.ticks)
}

// Operations that a late rail has no room for go by another one.
func TestQueueLeavesLateRail(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	r.send(1, "under way")
	w.rails[0][0].full = true
	r.send(1, "queued")
	bound := r.op("bound")
	bound.bound = true
	r.post(&pr.rails[0], bound)
	require.Equal(t, 2, pr.rails[0].queue.Len())
	for n := 0; !pr.slow.Has(0); n++ {
		require.Less(t, n, 10)
		w.deliverOn(1, 25*msec)
	}
	require.Equal(t, railUp, pr.rails[0].state, "it has failed before it was late")
	require.Same(t, bound, pop(&pr.rails[0].queue), "a bound operation cannot go by another rail")
	require.Len(t, w.on(tagNumbered), 1)
}

// deliverOn has rank 0 post an operation on a rail, and delivers it after a while. It delivers all
// TRIALs.
func (w *wire) deliverOn(rail int, nanos int64) {
	r := w.ranks[0]
	r.post(&r.Peer(1).rails[rail], r.op("other"))
	w.pass(nanos)
	for i := len(w.flying) - 1; i >= 0; i-- {
		if f := w.flying[i]; f.to == 1 && (f.rail == rail || f.tag == TagTrial) {
			w.step(i)
		}
	}
}

// While all rails take long, one of them is late only when it takes much longer.
func TestRailsThatAllTakeLong(t *testing.T) {
	w, pr := slowWire(t)
	for range 4 {
		w.deliverOn(1, 90*msec) // found by a tick or two
	}
	w.ranks[0].send(1, "waits")
	for range 3 {
		w.deliverOn(1, 90*msec)
		require.Zero(t, pr.slow)
	}
	w.deliverOn(1, 90*msec)
	require.EqualValues(t, 0b01, pr.slow)
}

// A slow rail on which only a TRIAL is late does not fail, and TRIALs are no traffic.
func TestLateTrialFailsNoRail(t *testing.T) {
	w, pr := slowWire(t)
	pr.becomesSlow(&pr.rails[0])
	w.ranks[0].prefer(pr)
	for range 40 {
		w.ranks[0].send(1, "by the other rail")
		for i := len(w.flying) - 1; i >= 0; i-- {
			if w.flying[i].rail == 1 {
				w.step(i)
			}
		}
		w.pass(25 * msec)
	}
	require.Equal(t, trialFragments, len(w.on(TagTrial)))
	require.NotZero(t, pr.rails[0].grade.late)
	require.Equal(t, railUp, pr.rails[0].state)
	require.EqualValues(t, trialFragments, pr.rails[0].meter.trials)
	w.pass(200 * msec)
	require.Nil(t, pr.watch.timer, "a TRIAL keeps the watch going")
}

// A rail on which only long messages are slow does not return because short ones are fast.
func TestLongTrialsCount(t *testing.T) {
	_, pr := slowWire(t)
	pr.becomesSlow(&pr.rails[0])
	for i := range 10 * leastGoodTicks {
		for j := range pr.rails {
			pr.rails[j].meter.addTrial(10_000, 0)
		}
		if i%2 == 1 {
			pr.rails[0].meter.trialTimes.samples[0] = 200_000
			pr.rails[0].meter.loadedTimes.samples[0] = 200_000
		}
		pr.b.compare(pr)
		for j := range pr.rails {
			pr.rails[j].meter.tick()
		}
	}
	require.EqualValues(t, 0b01, pr.slow)
}

// While a rail is slow, both rails have TRIALs of one length in each tick, long and short in turn.
// A long one does not follow another.
func TestTrialsOfATick(t *testing.T) {
	w, pr := slowWire(t)
	pr.becomesSlow(&pr.rails[0])
	w.ranks[0].prefer(pr)
	w.ranks[0].send(1, "traffic")
	w.pass(60 * msec)
	for range 4 {
		lengths := [2]map[int]int{{}, {}}
		for n := 0; len(w.flying) > 0; n++ {
			require.Less(t, n, 100)
			if f := w.flying[0]; f.tag == TagTrial {
				lengths[f.rail][len(f.frag)]++
			}
			w.step(0)
		}
		require.Equal(t, lengths[0], lengths[1])
		if pr.watch.count%2 == 1 {
			require.Equal(t, map[int]int{pr.rails[0].sendBytes: trialFragments}, lengths[0])
		} else {
			require.Equal(t, map[int]int{railBytes: shortTrials}, lengths[0])
		}
		w.ranks[0].send(1, "traffic")
		w.pass(50 * msec)
	}
}

// Without traffic there are no ticks, and no TRIALs, even if a rail is slow: whenever the traffic
// ends, and however long a TRIAL takes.
func TestNoTicksWithoutTraffic(t *testing.T) {
	for _, latency := range []int64{8, 10, 12, 30, 70} {
		w := newWatched(t, 10*sec, make([]loop.RailConfig, 2)...)
		require.NoError(t, w.fabric.SetLatency(0, latency*msec))
		w.exchange(1500)
		require.NotZero(t, w.pr.slow)
		for range 10 {
			w.exchange(37)
			w.run(sec, 0, 1)
			posts := w.pr.posts
			w.run(2*sec, 0, 1)
			require.Nil(t, w.pr.watch.timer)
			require.Equal(t, posts, w.pr.posts)
		}
	}
}

// A TRIAL that waits for room does not keep a rail from failing that delivers nothing.
func TestRailWithQueuedTrialFails(t *testing.T) {
	w, pr := slowWire(t)
	w.ranks[0].send(1, "stuck")
	w.rails[0][0].full = true
	w.ranks[0].tryRail(&pr.rails[0], 0, 1)
	require.Equal(t, 1, pr.rails[0].queue.Len())
	for n := 0; pr.rails[0].state == railUp; n++ {
		require.Less(t, n, 50)
		w.deliverOn(1, 25*msec)
	}
}

// A peer that makes progress in step with this rank's ticks answers messages late and TRIALs soon.
// That makes no rail slow.
func TestPeerInStepMakesNoRailSlow(t *testing.T) {
	_, pr := slowWire(t)
	for range 100 {
		for i, short := range []int64{10 * msec, msec} {
			pr.rails[i].meter.short.add(short)
			pr.rails[i].meter.addTrial(msec, 0)
		}
		pr.b.compare(pr)
		require.Zero(t, pr.slow)
		for i := range pr.rails {
			pr.rails[i].meter.tick()
		}
	}
	require.True(t, pr.rails[0].grade.isSuspect())
	for range 100 {
		pr.b.compare(pr) // neither carries anything
	}
	require.False(t, pr.rails[0].grade.isSuspect())
}

// One rail is always fast, that of which the TRIAL takes least.
func TestOneRailIsFast(t *testing.T) {
	w, pr := slowWire(t)
	for i := range pr.rails {
		pr.becomesSlow(&pr.rails[i])
		pr.rails[i].meter.addTrial(int64(2-i)*msec, 0)
	}
	pr.b.compare(pr)
	w.ranks[0].prefer(pr)
	require.EqualValues(t, 0b01, pr.slow)
	require.Same(t, &pr.rails[1], pr.first)
}

// The last rail to a peer does not fail because it is late.
func TestLastRailDoesNotFail(t *testing.T) {
	w, pr := slowWire(t)
	r := w.ranks[0]
	for i := range pr.rails {
		r.post(&pr.rails[i], r.op("stuck"))
		pr.rails[i].meter.oldest.ticks = 1000
		pr.rails[i].grade.isLate = true
	}
	r.leaveLate(pr)
	require.EqualValues(t, 0b10, pr.up)
}

// What a rail has delivered long ago says nothing, however many operations there were since.
func TestDeliveryLongAgoMakesNoRailLate(t *testing.T) {
	w, pr := slowWire(t)
	pr.rails[1].meter.delivered = 5
	pr.posts = 5 + 1<<31
	w.ranks[0].send(1, "waits")
	w.pass(sec)
	require.Zero(t, pr.slow)
}

// A rail alone is not watched.
func TestOneRailIsNotWatched(t *testing.T) {
	w := newWatched(t, 10*sec, loop.RailConfig{})
	w.exchange(100)
	require.Nil(t, w.pr.watch.timer)
}

// The share of long messages follows the time that a byte takes, compared with what the link
// promises.
func TestShareFollowsTimes(t *testing.T) {
	for _, c := range []struct {
		times      [2]int64 // picoseconds a byte
		mbps       [2]int64
		weights    [2]int64
		isSlow     RailSet
		isFirstOne bool
	}{
		{[2]int64{1000, 1000}, [2]int64{1000, 1000}, [2]int64{1000, 1000}, 0, true},
		{[2]int64{1000, 1400}, [2]int64{1000, 1000}, [2]int64{1000, 1000}, 0, true},
		{[2]int64{3000, 1000}, [2]int64{1000, 1000}, [2]int64{333, 1000}, 0, true},
		{[2]int64{1000, 3000}, [2]int64{3000, 1000}, [2]int64{3000, 1000}, 0, true},
		{[2]int64{9000, 1000}, [2]int64{1000, 1000}, [2]int64{}, 0b01, false},
		{[2]int64{0, 1000}, [2]int64{1000, 1000}, [2]int64{1000, 1000}, 0, true},
	} {
		t.Run(fmt.Sprint(c.times), func(t *testing.T) {
			w := newWire(t, 2, withRails(2), withGrace(10*sec), func(w *wire) {
				for i := range w.attrs {
					w.attrs[i].BandwidthMBps = c.mbps[i]
				}
			})
			resolve(w)
			pr := w.ranks[0].Peer(1)
			for range 40 {
				for i := range pr.rails {
					if c.times[i] > 0 {
						pr.rails[i].meter.long.add(c.times[i])
						pr.rails[i].meter.addTrial(c.times[i]*1000, 0)
					}
				}
				pr.b.compare(pr)
				w.ranks[0].prefer(pr)
				for i := range pr.rails {
					pr.rails[i].meter.long.tick()
					pr.rails[i].meter.tick()
				}
			}
			for i, want := range c.weights {
				if c.isSlow != 0 {
					break // the slow one has no share
				}
				require.InDelta(t, want, pr.rails[i].weight, 5, "rail %d", i)
			}
			require.Equal(t, c.isSlow, pr.slow)
			require.Equal(t, c.isFirstOne, pr.first == &pr.rails[0])
		})
	}
}

// What is shown of a rail is the median of each tick: an operation that waited for the peer says
// nothing of the rail.
func TestMedianOfTickIsUsual(t *testing.T) {
	var m timing
	for _, sample := range []int64{90_000, 10, 100} {
		m.add(sample)
	}
	m.tick()
	require.EqualValues(t, 100, m.usual)
	require.EqualValues(t, 10_000, m.rate())
	m.add(900)
	m.tick()
	require.EqualValues(t, 200, m.usual)
	m.tick()
	require.EqualValues(t, 200, m.usual, "nothing was timed")
	for range 2 * samplesPerTick {
		m.add(1)
	}
	require.Equal(t, samplesPerTick, m.n)
}

// A rail that carries little is not slower for it: the least time of many operations is less than
// that of few.
func TestRailsAreComparedByEquallyMany(t *testing.T) {
	_, pr := slowWire(t)
	random := rand.New(rand.NewPCG(1, 2))
	average, ticks := 0.0, 2000
	for range ticks {
		for i, n := range []int{samplesPerTick, 1} {
			for range n {
				pr.rails[i].meter.long.add(1000 + int64(random.ExpFloat64()*20_000))
			}
		}
		pr.b.compare(pr)
		for i := range pr.rails {
			pr.rails[i].meter.long.tick()
		}
		average += math.Log(pr.rails[1].grade.slowness) / float64(ticks)
	}
	require.InDelta(t, 0, average, 0.2)
	require.Zero(t, pr.slow)
}

// A rail that becomes slow again and again has to be fast for longer each time.
func TestSlowRailProvesItself(t *testing.T) {
	_, pr := slowWire(t)
	rl := &pr.rails[0]
	tick := func(times int, short int64) {
		for range times {
			for i, nanos := range []int64{short, 1000} {
				pr.rails[i].meter.short.add(nanos)
				pr.rails[i].meter.addTrial(nanos, 0)
			}
			pr.b.compare(pr)
			for i := range pr.rails {
				pr.rails[i].meter.tick()
			}
		}
	}
	for _, need := range []int{8, 16, 32, 32} {
		tick(badTicks-1, sec)
		require.Zero(t, pr.slow, "a tick or two prove nothing")
		tick(1, sec)
		require.EqualValues(t, 0b01, pr.slow)
		tick(need-1, 1000)
		require.EqualValues(t, 0b01, pr.slow, "it was fast in fewer than %d ticks", need)
		tick(1, sec)
		tick(need-1, 1000)
		require.EqualValues(t, 0b01, pr.slow, "it was slow in between")
		tick(1, 1000)
		require.Zero(t, pr.slow)
	}
	tick(calmTicks, 1000)
	require.Equal(t, mostGoodTicks/2, rl.grade.need, "time is forgiving")
	tick(calmTicks, 1000)
	require.Equal(t, mostGoodTicks/4, rl.grade.need, "and forgives again")
}

// Times that nobody would notice make no rail slow.
func TestFewMicrosecondsAreNotSlow(t *testing.T) {
	_, pr := slowWire(t)
	for range 10 {
		pr.rails[0].meter.short.add(leastSlowNanos)
		pr.rails[1].meter.short.add(1000)
		pr.b.compare(pr)
	}
	require.Zero(t, pr.slow)
}

// The times of operations that fail do not count, and what a failed rail had under way does not
// either.
func TestFailedOperationsAreNotTimed(t *testing.T) {
	w, pr := slowWire(t)
	w.ranks[0].send(1, "first")
	w.ranks[0].send(1, "timed")
	m := &pr.rails[0].meter
	require.NotNil(t, m.timed)
	require.EqualValues(t, 2, m.underWay())
	w.rails[0][0].lose(1, pathError(0))
	require.Nil(t, m.timed)
	require.Zero(t, m.underWay())
	require.Zero(t, m.bytes)
	require.Zero(t, m.short.n)
	require.Zero(t, m.delivered)
}

// An operation that an endpoint does not take is not counted.
func TestRefusedOperationIsNotCounted(t *testing.T) {
	w, pr := slowWire(t)
	w.ranks[0].send(1, "first")
	w.refuse = 1
	w.ranks[0].send(1, "refused")
	m := &pr.rails[0].meter
	require.EqualValues(t, 1, m.underWay())
	require.Nil(t, m.timed)
	require.EqualValues(t, samplesPerTick-1, m.short.left)
	require.Zero(t, m.trial.posted, "it is no TRIAL")
	w.settle()
	require.Zero(t, m.underWay())
	require.Zero(t, m.bytes)
}

// A message leaves a rail alone that has much of other messages under way.
func TestPieceAvoidsLoadedRail(t *testing.T) {
	_, pr := slowWire(t)
	for i := range pr.rails {
		pr.rails[i].latencyNanos = 0
	}
	pr.rails[0].meter.bytes = 1 << 20
	var s stripes
	s.begin(0, 4<<10)
	i, _, _ := s.take(pr.rails, 0b11, Fragments, testHeaderBytes)
	require.Equal(t, 1, i)
}

// An end that still waits for the delivery of its PROBEACK answers a TRIAL: the other end may use
// the rail already.
func TestProbingRailAnswersTrial(t *testing.T) {
	w, pr := slowWire(t)
	w.rails[0][0].lose(1, pathError(0))
	for n := 0; pr.rails[0].state != railProbing; n++ {
		require.Less(t, n, 1000)
		w.pass(msec)
	}
	h := railHeader{counters: deliveryCounters{delivered: 7}}
	w.arrive(0, 1, 0, TagTrial, railMessage(h))
	require.Len(t, w.on(TagTrialAck), 1)
	h.counters.delivered = 0
	w.arrive(0, 1, 0, TagTrial, railMessage(h))
	require.Len(t, w.on(TagTrialAck), 1, "only the last fragment is answered")
}

// A TRIAL is dropped by its receiver, whatever it says.
func TestTrialArrives(t *testing.T) {
	w, pr := slowWire(t)
	w.arrive(0, 1, 0, TagTrial, railMessage(railHeader{sender: 9, receiver: 9, padding: 7}))
	require.True(t, pr.IsAlive())
	w.arrive(0, 1, 0, TagTrial, []byte{1})
	require.False(t, pr.IsAlive(), "a malformed one loses the peer")
}

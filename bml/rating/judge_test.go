package rating

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	milli  = int64(1e6)
	second = int64(1e9)
)

func unbounded(int) int64 { return 1 << 40 }

// measured makes a Judge whose rails have delivered at rates, in bytes a nanosecond, with round
// trips of 0.1 ms, and have nothing under way at the time that it returns.
func measured(rates ...float64) (j *Judge, now int64) {
	j = New(rates, 0)
	for i, rate := range rates {
		at := int64(0)
		for range 200 {
			const bytes = 4 * LeastPiece
			mark := j.Posted(i, bytes, at)
			at += int64(bytes/rate) + milli/10
			j.Delivered(i, bytes, mark, at)
		}
		now = max(now, at)
	}
	return j, now
}

func TestNextAloneNeverWaitsWithoutLoad(t *testing.T) {
	j := New([]float64{1}, 0)
	for left := int64(1); left < 1<<30; left *= 3 {
		rail, bytes := j.Next(1, Demand{Left: left, All: left, Messages: 1}, unbounded, 0)
		assert.Zero(t, rail)
		assert.Positive(t, bytes)
		assert.LessOrEqual(t, bytes, left)
	}
}

func TestNextOfNoRailWaits(t *testing.T) {
	j := New([]float64{1}, 0)
	rail, _ := j.Next(0, Demand{Left: 1, All: 1, Messages: 1}, unbounded, 0)
	assert.Negative(t, rail)
}

func TestNextHasNoMoreThanTheLongest(t *testing.T) {
	j, now := measured(10)
	_, bytes := j.Next(1, Demand{Left: 1 << 30, All: 1 << 30, Messages: 1}, func(int) int64 { return 1000 }, now)
	assert.EqualValues(t, 1000, bytes)
}

// TestNextWaitsForAFasterRail: the slow rail has room, but the fast one ends sooner.
func TestNextWaitsForAFasterRail(t *testing.T) {
	j, now := measured(1, 0.001)
	const left = 16 << 10
	for j.meters[0].hasRoom(now) {
		j.Posted(0, LeastPiece, now)
	}
	rail, _ := j.Next(3, Demand{Left: left, All: left, Messages: 1}, unbounded, now)
	assert.Negative(t, rail, "a short rest")
	rail, _ = j.Next(3, Demand{Left: 1 << 30, All: 1 << 30, Messages: 1}, unbounded, now)
	assert.Equal(t, 1, rail, "a long rest")
}

// alone has rail 0 deliver pieces one after the other, each after a round trip and its own time.
func alone(j *Judge, now, trip int64, rate float64) (later int64) {
	for range 100 {
		mark := j.Posted(0, LeastPiece, now)
		now += trip + int64(LeastPiece/rate)
		j.Delivered(0, LeastPiece, mark, now)
	}
	return now
}

// TestBaseIsWithoutTheTimeOfTheBytes: lone pieces do not show how much of the trip is their own
// time. At least half of it counts as that.
func TestBaseIsWithoutTheTimeOfTheBytes(t *testing.T) {
	const rate = 0.000625 // 5 Mbit/s
	j := New([]float64{1}, 0)
	alone(j, 0, milli/10, rate)
	assert.Less(t, j.meters[0].base, 0.55*LeastPiece/rate)
}

func TestBaseFollowsALongerPath(t *testing.T) {
	j := New([]float64{1}, 0)
	now := alone(j, 0, milli/10, 1)
	assert.Less(t, j.meters[0].base, 0.2*float64(milli))
	alone(j, now, 50*milli, 1)
	assert.Greater(t, j.meters[0].base, 20*float64(milli))
}

func TestRoomStartsAnewAfterAPause(t *testing.T) {
	j, now := measured(1)
	assert.Greater(t, j.meters[0].roomNow(now), 10.0*leastRoom)
	now += int64(memoryNanos) + second
	j.Posted(0, LeastPiece, now)
	assert.EqualValues(t, leastRoom, j.meters[0].roomNow(now))
}

// TestPieceIsHalfOfTheShareAtMost: so rails end a message at about the same time.
func TestPieceIsHalfOfTheShareAtMost(t *testing.T) {
	j, now := measured(1, 1)
	_, bytes := j.Next(3, Demand{Left: 128 << 10, All: 128 << 10, Messages: 1}, unbounded, now)
	assert.InEpsilon(t, 32<<10, bytes, 0.01)
	_, bytes = j.Next(3, Demand{Left: 1 << 40, All: 1 << 40, Messages: 1}, unbounded, now)
	assert.InEpsilon(t, j.meters[0].roomNow(now)/roomParts, float64(bytes), 0.01)
}

func TestExpectGrowsWithSilence(t *testing.T) {
	j, now := measured(1)
	j.Posted(0, LeastPiece, now)
	before := j.meters[0].expect(1000, now)
	for k := int64(1); k < 1e6; k *= 10 {
		next := j.meters[0].expect(1000, now+k*milli)
		assert.Greater(t, next, before)
		before = next
	}
	assert.Greater(t, before, 0.9*1e5*float64(milli), "what is overdue will take as long again")
}

func TestTrafficOfReturnTakesNoSample(t *testing.T) {
	j, now := measured(1)
	rate := j.meters[0].rate(now)
	mark := j.Posted(0, LeastPiece, now)
	now += 10 * second
	j.Returned(now-9*second, now)
	j.Delivered(0, LeastPiece, mark, now+milli)
	after, isMeasured := j.meters[0].rate(now+milli), j.meters[0].isMeasured()
	assert.True(t, isMeasured)
	assert.InDelta(t, rate, after, rate/1000)
	assert.Zero(t, j.Under(0))
}

func TestDroppedTakesNoSample(t *testing.T) {
	j := New([]float64{1}, 0)
	j.Posted(0, 1000, 0)
	j.Dropped(0, 1000)
	assert.Zero(t, j.Under(0))
	isMeasured := j.meters[0].isMeasured()
	assert.False(t, isMeasured)
}

func TestRenewForgets(t *testing.T) {
	j, now := measured(1, 1)
	j.Posted(0, 1000, now)
	j.Renew(0, now)
	assert.Zero(t, j.Under(0))
	isMeasured := j.meters[0].isMeasured()
	assert.False(t, isMeasured)
	isMeasured = j.meters[1].isMeasured()
	assert.True(t, isMeasured)
}

// TestRateOfDeliveryOnReturn: a transport that delivers inside the post has no time, and a rate all
// the same.
func TestRateOfDeliveryOnReturn(t *testing.T) {
	j := New([]float64{1}, 0)
	for range 100 {
		j.Delivered(0, 1<<16, j.Posted(0, 1<<16, 5), 5)
	}
	rate, isMeasured := j.meters[0].rate(5), j.meters[0].isMeasured()
	assert.True(t, isMeasured)
	assert.EqualValues(t, mostRate, rate)
}

func TestAgainNeedsMuchLessTimeAndABudget(t *testing.T) {
	j, now := measured(1, 1)
	soon := j.meters[1].expect(LeastPiece, now) + j.meters[1].base/2
	assert.Negative(t, j.Again(2, LeastPiece, soon*margin, now), "not much sooner")
	budget := j.budget
	assert.Equal(t, 1, j.Again(2, LeastPiece, soon*margin*1.01, now))
	assert.InDelta(t, budget-LeastPiece, j.budget, 1)
	for j.Again(2, LeastPiece, math.Inf(1), now) >= 0 {
	}
	assert.GreaterOrEqual(t, j.budget, 0.0)
	assert.Less(t, j.budget, float64(LeastPiece))
	j.Delivered(1, 100*LeastPiece, j.Posted(1, 100*LeastPiece, now), now+milli)
	assert.Equal(t, 1, j.Again(2, LeastPiece, math.Inf(1), now+milli), "deliveries pay for it")
}

func TestDueCountsWhatIsAhead(t *testing.T) {
	j, now := measured(1, 1)
	first := j.Posted(0, 1<<20, now)
	second := j.Posted(0, 1<<20, now)
	rate := j.meters[0].rate(now)
	assert.InDelta(t, (1<<20)/rate, j.Due(0, second, now)-j.Due(0, first, now), 1e3)
	at := now + int64((1<<20)/rate)
	j.Delivered(0, 1<<20, first, at)
	assert.Less(t, j.Due(0, second, at), 1.2*(1<<20)/rate)
}

func TestShortKeepsItsRail(t *testing.T) {
	j, now := measured(1, 1.2, 1)
	assert.Equal(t, 0, j.Short(7, 0, 8, now), "another one is hardly better")
	for range 100 {
		j.Posted(0, LeastPiece, now)
	}
	assert.Equal(t, 1, j.Short(7, 0, 8, now), "much is ahead")
	assert.Equal(t, 0, j.Short(1, 0, 8, now), "no other rail")
	assert.Equal(t, 2, j.Short(4, 0, 8, now), "the rail is gone")
	assert.Equal(t, 0, j.Short(0, 0, 8, now), "all are gone")

	j = New([]float64{1, 100}, 0)
	assert.Equal(t, 0, j.Short(3, 0, 8, 0), "nothing is known of the other one")
}

func TestStaleRailsAreTried(t *testing.T) {
	j, now := measured(1, 1)
	assert.Zero(t, j.Stale(3, now))
	now += int64(memoryNanos) + second
	assert.EqualValues(t, 3, j.Stale(3, now))
	assert.EqualValues(t, 2, j.Stale(2, now))
	j.Posted(0, LeastPiece, now)
	assert.EqualValues(t, 2, j.Stale(3, now), "something is under way")
}

func TestEqualRailsHaveEqualShares(t *testing.T) {
	w := newWorld(1, tcp(100), tcp(100), tcp(100))
	p := w.peer(0, w.wires())
	left := 20
	var next func()
	next = func() {
		if left--; left > 0 {
			p.long(1e7, next)
		}
	}
	next()
	w.Run(limit, func() bool { return left == 0 })
	all := p.delivered[0] + p.delivered[1] + p.delivered[2]
	for i, bytes := range p.delivered {
		assert.InEpsilon(t, float64(all)/3, float64(bytes), 0.1, "rail %d", i)
	}
}

// TestAnyTrafficKeepsTheInvariants drives a Judge with random rates from one byte a second to 100
// GB/s, random gaps of up to hours, and random fates.
func TestAnyTrafficKeepsTheInvariants(t *testing.T) {
	for seed := range uint64(60) {
		answers := drive(t, seed)
		require.Equal(t, answers, drive(t, seed), "seed %d: the same samples, other answers", seed)
	}
}

type flying struct {
	rail  int
	bytes int64
	mark  Mark
}

func drive(t *testing.T, seed uint64) (answers []int64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	rails := 1 + rng.IntN(Most)
	promised := make([]float64, rails)
	for i := range promised {
		promised[i] = math.Pow(10, rng.Float64()*11-9)
	}
	j := New(promised, 0)
	now := int64(0)
	var under []flying
	var posted, again int64
	for range 1000 {
		set := Set(rng.Uint64()) & (1<<rails - 1)
		switch rng.IntN(6) {
		case 0, 1:
			left := int64(math.Pow(2, rng.Float64()*40))
			i, n := j.Next(set, Demand{Left: left, All: left * 3, Messages: 2}, unbounded, now)
			answers = append(answers, int64(i), n)
			if i < 0 {
				break
			}
			require.True(t, set.Has(i), "seed %d: rail %d of another set", seed, i)
			require.True(t, n > 0 && n <= left, "seed %d: piece of %d bytes of %d", seed, n, left)
			require.True(t, j.meters[i].hasRoom(now), "seed %d: rail %d has no room", seed, i)
			under = append(under, flying{i, n, j.Posted(i, n, now)})
			posted += n
		case 2, 3:
			if len(under) == 0 {
				break
			}
			f := under[0]
			under = under[1:]
			if rng.IntN(10) == 0 {
				j.Dropped(f.rail, f.bytes)
			} else {
				j.Delivered(f.rail, f.bytes, f.mark, now)
			}
		case 4:
			now += int64(math.Pow(10, rng.Float64()*14)) // up to a day
		case 5:
			if i := j.Again(set, 1000, float64(now), now); i >= 0 {
				again += 1000
				under = append(under, flying{i, 1000, j.Posted(i, 1000, now)})
			}
			if rng.IntN(20) == 0 {
				j.Returned(now-rng.Int64N(now+1), now)
			}
		}
		for i := range j.meters {
			m := &j.meters[i]
			rate := j.meters[i].rate(now)
			room, expect := m.roomNow(now), j.meters[i].expect(1<<20, now)
			if !(rate > 0 && rate <= mostRate && expect > 0 && !math.IsInf(expect, 0) && room > 0 && room <= mostRoom && j.Under(i) >= 0) {
				t.Fatalf("seed %d: rail %d: rate %v, expect %v, room %v, under way %d", seed, i, rate, expect, room, j.Under(i))
			}
		}
		require.GreaterOrEqual(t, j.budget, 0.0, "seed %d", seed)
	}
	require.LessOrEqual(t, float64(again), budgetShare*float64(posted+again)+firstBudget, "seed %d", seed)
	return answers
}

func TestAnswersDoNotAllocate(t *testing.T) {
	j, now := measured(1, 0.5, 0.1)
	longest := func(int) int64 { return 1 << 20 }
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		d := Demand{Left: 1 << 20, All: 1 << 20, Messages: 1}
		i, n := j.Next(7, d, longest, now)
		mark := j.Posted(i, n, now)
		j.Due(i, mark, now)
		j.Again(7, LeastPiece, 1, now)
		j.Short(7, 0, 8, now)
		j.Stale(7, now)
		now += milli
		j.Delivered(i, n, mark, now)
	}))
}

func BenchmarkPiece(b *testing.B) {
	j, now := measured(1, 0.5)
	longest := func(int) int64 { return 1 << 20 }
	for b.Loop() {
		i, n := j.Next(3, Demand{Left: 1 << 30, All: 1 << 30, Messages: 1}, longest, now)
		mark := j.Posted(i, n, now)
		now += 100_000
		j.Delivered(i, n, mark, now)
	}
}

// TestShortPiecesShowNoRate: a message far shorter than a piece shows only the latency.
func TestShortPiecesShowNoRate(t *testing.T) {
	j, now := New([]float64{10}, 0), int64(0)
	for range 100 {
		mark := j.Posted(0, 64, now)
		now += milli / 100
		j.Delivered(0, 64, mark, now)
	}
	rate, isMeasured := j.meters[0].rate(now), j.meters[0].isMeasured()
	assert.False(t, isMeasured)
	assert.InDelta(t, 10, rate, 0)
	assert.InDelta(t, milli/100, j.RoundTrip(0), float64(milli)/1000)
	assert.EqualValues(t, 1, j.Stale(1, now+int64(memoryNanos)), "no TRIAL would measure it")
}

// TestPromisedRoundTripCounts until one is measured, and again after Renew.
func TestPromisedRoundTripCounts(t *testing.T) {
	j := New([]float64{1, 1}, 0)
	j.Promise(0, float64(milli))
	d := Demand{Left: 100, All: 100, Messages: 1}
	rail, _ := j.Next(3, d, unbounded, 0)
	assert.Equal(t, 1, rail)
	now := alone(j, 0, milli/1000, 1)
	assert.Less(t, j.meters[0].expect(100, now), float64(milli)/10)
	assert.Zero(t, j.RoundTrip(1))
	j.Renew(0, now)
	assert.Greater(t, j.meters[0].expect(100, now), float64(milli)/2)
}

// A loaded rail that delivers less than an eighth of what it could lags after a second, until it
// delivers more. One that carries little does not show it.
func TestRailThatLags(t *testing.T) {
	const could = 1.0 // bytes a nanosecond
	for name, c := range map[string]struct {
		rate  float64
		under int64 // bytes that are always under way
		want  bool
	}{
		"slow":       {could / 10, 256 << 10, true},
		"shared":     {could / 4, 256 << 10, false},
		"carries 8K": {could / 10, LeastPiece, false},
	} {
		t.Run(name, func(t *testing.T) {
			j, now := New([]float64{could}, 0), int64(0)
			deliver := func(rate float64, until int64) (lags bool) {
				var marks []Mark
				for ; now < until; now += int64(LeastPiece / rate) {
					for j.Under(0) < c.under {
						marks = append(marks, j.Posted(0, LeastPiece, now))
					}
					lags = j.Lags(0, could, now)
					j.Delivered(0, LeastPiece, marks[0], now)
					marks = marks[1:]
				}
				for range marks {
					j.Dropped(0, LeastPiece)
				}
				return lags
			}
			require.False(t, deliver(could, 2e9))
			require.False(t, deliver(c.rate, 2.9e9), "it is slow for less than a second")
			require.Equal(t, c.want, deliver(c.rate, 5e9))
			require.False(t, deliver(could, 6e9))
		})
	}
}

// carry has a rail deliver pieces at a rate, from one time until another. At least under bytes are
// under way all the time.
func carry(j *Judge, rail int, rate float64, under, from, until int64) {
	var marks []Mark
	for now := from; now < until; now += int64(LeastPiece / rate) {
		for j.Under(rail) < under {
			marks = append(marks, j.Posted(rail, LeastPiece, now))
		}
		j.Delivered(rail, LeastPiece, marks[0], now)
		marks = marks[1:]
	}
}

// A rail is slow only if its room was full. A rail that carries only trials, or little traffic, is
// not.
func TestSlowRailHasItsRoomFull(t *testing.T) {
	for name, c := range map[string]struct {
		rate  float64
		under int64
		want  Set
	}{
		"slow":      {0.1, 1 << 20, 0b10},
		"less slow": {0.4, 4 << 20, 0},
		"idle":      {0.1, LeastPiece, 0},
	} {
		t.Run(name, func(t *testing.T) {
			j := New([]float64{1, 1}, 0)
			carry(j, 0, 1, 1<<20, 0, second)
			carry(j, 1, c.rate, c.under, 0, second)
			require.Equal(t, c.want, j.Slow(0b11, second))
			require.Zero(t, j.Slow(0b10, second), "there is no other")
		})
	}
}

// A rail that falls silent is slow soon, and stays so, also if this process stands still meanwhile.
func TestSilentRailStaysSlow(t *testing.T) {
	j, now := measured(1, 1)
	for j.Under(1) < 8<<20 {
		j.Posted(1, 256<<10, now)
	}
	require.Zero(t, j.Slow(0b11, now))
	for range 5 {
		carry(j, 0, 1, 1<<20, now, now+second)
		now += second
		require.EqualValues(t, 0b10, j.Slow(0b11, now))
		rate := j.Measured(1, now)
		j.Returned(now, now+second)
		now += second
		require.InEpsilon(t, rate, j.Measured(1, now), 1e-6, "the time away counts, or what was before does not")
	}
}

// A rail that was slow for a moment, ten seconds ago, has not lagged for a second: without traffic
// since, Lags was not called.
func TestMomentBeforeIdleTimeIsNoLag(t *testing.T) {
	j, now := New([]float64{1}, 0), int64(1)
	send := func(n, took int64) {
		m := j.Posted(0, n, now)
		now += took
		j.Delivered(0, n, m, now)
	}
	for range 100 {
		send(1e6, milli) // 1 byte/ns
	}
	m := j.Posted(0, 1e6, now)
	now += 900 * milli // held up once
	require.False(t, j.Lags(0, 1, now))
	j.Delivered(0, 1e6, m, now)
	now += 10_000 * milli // nothing to send
	j.Posted(0, 1e6, now)
	require.False(t, j.Lags(0, 1, now), "at the first tick of the next message")
}

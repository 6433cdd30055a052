package ibverbs

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/simhca"
	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// postedInline counts the requests that a queue pair was given, those that were inline, and the
// longest of these.
type postedInline struct {
	verbs.QP
	all, inline, longest int
}

func (q *postedInline) PostSend(wrs []verbs.SendWR) (int, error) {
	for i := range wrs {
		q.all++
		if wrs[i].Flags&verbs.SendInline != 0 {
			q.inline++
			q.longest = max(q.longest, int(wrs[i].SGE[0].Length))
		}
	}
	return q.QP.PostSend(wrs)
}

// TestConnectOnDevicesWithLittleInline: whatever a device takes inline, down to nothing,
// connections come about, and as much as it has granted is used.
func TestConnectOnDevicesWithLittleInline(t *testing.T) {
	for _, c := range []struct{ most, unit, granted int }{
		{256, 1, 128}, {256, 100, 200}, {128, 1, 128}, {127, 1, 96}, {101, 1, 96}, {96, 1, 96}, {60, 1, 32},
		{60, 24, 48}, {16, 1, 16}, {15, 1, 0}, {-1, 1, 0},
	} {
		t.Run(fmt.Sprintf("%d-%d", c.most, c.unit), func(t *testing.T) {
			device := simhca.DeviceConfig{MaxInline: c.most, InlineUnit: c.unit}
			w := newWorldOf(t, Config{}, [2]simhca.DeviceConfig{device, device})
			w.connect()
			w.works()
			a, b := w.ranks[0], w.ranks[1]
			e := a.end()
			require.Equal(t, c.granted, e.maxInline)
			qp := &postedInline{QP: e.qp}
			e.qp = qp
			w.sendsOfLengths(b)
			require.Equal(t, c.granted, qp.longest)
			if c.granted == 0 {
				require.Zero(t, qp.inline)
			}
			e.qp = qp.QP
			a.ep.Fail(nil)
			w.mend()
		})
	}
}

// sendsOfLengths sends fragments of all lengths around what goes inline.
func (w *world) sendsOfLengths(to *rankOf) {
	w.t.Helper()
	from := w.ranks[1-to.rank]
	for n := range 2 * inlineSizes[0] {
		before := len(to.arrived)
		text := strings.Repeat("x", n)
		require.NoError(w.t, from.send(text))
		w.until("the fragment", func() bool { return len(to.arrived) > before })
		require.Equal(w.t, text, to.arrived[before])
	}
}

// refusingPD refuses queue pairs, and notes how much inline data they were to take.
type refusingPD struct {
	verbs.PD
	err   error
	asked []int
}

func (d *refusingPD) CreateQP(init verbs.QPInit) (verbs.QP, error) {
	d.asked = append(d.asked, init.Cap.MaxInlineData)
	return nil, d.err
}

// TestQueuePairRefusedWhateverItsInline: the error is the first one. What has nothing to do with
// sizes is not tried again, and what the device was not asked in vain for is asked for the next
// time.
func TestQueuePairRefusedWhateverItsInline(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.ranks[0]
	pd := a.m.h.pd
	for _, c := range []struct {
		err   error
		asked []int
	}{
		{verbs.NewCallError("ibv_create_qp", 22, ""), inlineSizes[:]},
		{verbs.NewCallError("ibv_create_qp", 12, ""), inlineSizes[:]},
		{errors.New("no"), inlineSizes[:1]},
	} {
		refusing := &refusingPD{PD: pd, err: c.err}
		a.m.h.pd = refusing
		_, err := a.m.Connect(1, w.ranks[1].m.Address())
		require.ErrorIs(t, err, c.err)
		require.Equal(t, c.asked, refusing.asked)
	}
	a.m.h.pd = pd
	w.connect()
	w.works()
	require.Equal(t, inlineSizes[0], a.end().maxInline)
}

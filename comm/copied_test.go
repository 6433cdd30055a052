package comm

import (
	"context"
	"crypto/sha256"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/progress"
)

// acquainted makes two ranks that one address joins and that have exchanged messages. While
// *blocked is set, which the lock of the engine of rank 0 guards, rank 0 makes no connection.
func acquainted(t *testing.T, grace string, blocked *bool) []*Comm {
	secret := sha256.Sum256([]byte("a secret"))
	worlds := hereWorld(t, 2, func(j *job, bell *progress.PipeWakeup) []btl.Module {
		j.others = alone{}
		j.async = newAsyncProgress(j.eng, j.pml.HasBcopies)
		m, err := tcp.New(tcp.Config{Rank: j.rank, Size: 2, Events: j.pml, Wakeup: bell, AsyncProgress: j.async.request, Blocked: func(int) bool { return j.rank == 0 && *blocked },
			Local: netip.MustParseAddr("127.0.0.1"), Secret: secret[:]})
		require.NoError(t, err)
		return []btl.Module{m}
	}, WithSetting("pml.notices", "false"), WithSetting("pml.grace", grace))
	answered := make(chan error, 1)
	go func() {
		b := make([]byte, 1)
		_, err := Recv(worlds[1], b, 0, 0)
		if err == nil {
			err = Send(worlds[1], b, 0, 0)
		}
		answered <- err
	}()
	b := make([]byte, 1)
	require.NoError(t, Send(worlds[0], b, 1, 0))
	_, err := Recv(worlds[0], b, 1, 0)
	require.NoError(t, err)
	require.NoError(t, <-answered)
	return worlds
}

// with calls f with the rail of rank 0, under the engine's lock.
func with(w *Comm, f func(m breakable)) {
	w.job.eng.Lock()
	defer w.job.eng.Unlock()
	f(w.job.modules[0].(breakable))
}

type breakable interface {
	Break(rank int) bool
}

// TestFinalizeReportsLostShortMessage: a short message is lost, after its send has returned, with
// the last rail to a rank that nothing else is sent to.
func TestFinalizeReportsLostShortMessage(t *testing.T) {
	var blocked bool
	w := acquainted(t, "50ms", &blocked)[0]
	with(w, func(m breakable) {
		blocked = true
		m.Break(1)
		require.Nil(t, w.job.pml.Send(w.p2p, []byte{1}, 1, 7, pml.Standard, "send"))
	})
	isUnderWay := func() bool {
		w.job.eng.Lock()
		defer w.job.eng.Unlock()
		w.job.eng.Turn()
		return w.job.pml.HasBcopies()
	}
	for deadline := time.Now().Add(20 * time.Second); isUnderWay(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "it is never given up")
	}
	err := w.Finalize()
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "send (peer 1, tag 7)")
}

// TestRailComesBackWhileSenderComputes: the only connection breaks with a short message whose send
// has returned, and the sender makes no further call. The receiver reconnects and gets the message.
func TestRailComesBackWhileSenderComputes(t *testing.T) {
	worlds := acquainted(t, "20s", new(bool))
	with(worlds[0], func(m breakable) {
		require.True(t, m.Break(1))
		require.Nil(t, worlds[0].job.pml.Send(worlds[0].p2p, []byte{42}, 1, 7, pml.Standard, "send"))
		for worlds[0].job.pml.Stats().RailsFailed == 0 {
			worlds[0].job.eng.Turn()
		}
	})
	b := make([]byte, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	_, err := Recv(worlds[1].WithContext(ctx), b, 0, 7)
	require.NoError(t, err)
	require.EqualValues(t, 42, b[0])
}

// TestRailComesBackWhileOtherRankComputes: as before, but nothing was sent. The receiver does not
// lose the rank that will send.
func TestRailComesBackWhileOtherRankComputes(t *testing.T) {
	worlds := acquainted(t, "2s", new(bool))
	with(worlds[0], func(m breakable) { require.True(t, m.Break(1)) })
	received := make(chan error, 1)
	go func() {
		_, err := Recv(worlds[1], make([]byte, 1), 0, 7)
		received <- err
	}()
	isBack := func() bool {
		for _, r := range worlds[1].Rails() {
			if r.Peer == 0 && r.State == "up" {
				return worlds[1].Stats().RailsReturned > 0
			}
		}
		return false
	}
	for deadline := time.Now().Add(20 * time.Second); !isBack(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "the rail does not come back")
		require.Empty(t, received, "the rank is given up")
	}
	require.NoError(t, Send(worlds[0], []byte{1}, 1, 7))
	require.NoError(t, <-received)
}

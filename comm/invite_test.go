package comm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// inviteSeeds are well-formed INVITEs.
var inviteSeeds = []inviteBody{
	{kind: inviteMade, parent: 0, id: 1<<48 - 2, digest: 1<<64 - 1},
	{kind: inviteGivenUp, parent: 1<<48 - 2},
	{kind: inviteAsked, parent: 2},
	{kind: inviteDeclined, parent: 6, id: 8, reason: declinedFinalized},
}

func FuzzInvite(f *testing.F) {
	for _, b := range inviteSeeds {
		f.Add(b.encode())
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		var b inviteBody
		if err := b.decode(data); err != nil {
			require.ErrorIs(t, err, errMalformedInvite)
			return
		}
		require.True(t, bytes.Equal(data, b.encode()))
	})
}

func TestMalformedInvitesAreRefused(t *testing.T) {
	for _, want := range inviteSeeds {
		var got inviteBody
		require.NoError(t, got.decode(want.encode()))
		assert.Equal(t, want, got)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"short":           func(b []byte) []byte { return b[:inviteBytes-1] },
		"long":            func(b []byte) []byte { return append(b, 0) },
		"kind":            func(b []byte) []byte { b[6] = 5; return b },
		"no kind":         func(b []byte) []byte { b[6] = 0; return b },
		"reason":          func(b []byte) []byte { b[7] = 1; return b },
		"parent":          func(b []byte) []byte { b[0] |= 1; return b },
		"id":              func(b []byte) []byte { b[14] = 1; return b },
		"declined":        func(b []byte) []byte { b[6] = byte(inviteDeclined); return b },
		"nothing is made": func(b []byte) []byte { b[6] = byte(inviteGivenUp); return b },
	} {
		var b inviteBody
		assert.ErrorIs(t, b.decode(change(inviteSeeds[0].encode())), errMalformedInvite, name)
	}
}

// TestWrongInvitesLoseTheirSender: ids that are not the sender's, other kinds of fragments, and
// more INVITEs than a rank keeps.
func TestWrongInvitesLoseTheirSender(t *testing.T) {
	made := func(id pml.ContextID) []byte { return inviteBody{kind: inviteMade, id: id}.encode() }
	run(t, 2, func(w *Comm) {
		if w.Rank() == 1 {
			return
		}
		v := w.job.invites
		locked(w, func() error {
			for name, f := range map[string]pml.Control{
				"malformed":       {Kind: pml.ControlInvite, From: 1},
				"kind":            {Kind: pml.ControlRevoke, From: 1, Data: made(1<<47 | 4)},
				"of another rank": {Kind: pml.ControlInvite, From: 1, Data: made(4)},
				"in use":          {Kind: pml.ControlInvite, From: 0, Data: made(0)},
			} {
				assert.Error(t, v.Control(f), name)
			}
			_, err := v.Arriving(1, 0)
			assert.Error(t, err)
			for i := range maxInvites {
				assert.NoError(t, v.Control(pml.Control{Kind: pml.ControlInvite, From: 1, Data: made(1<<47 | pml.ContextID(4+2*i))}))
			}
			assert.ErrorContains(t, v.Control(pml.Control{Kind: pml.ControlInvite, From: 1, Data: made(1<<47 | 1<<20)}), "more than 4096")
			// Calls that the leader has given up cost nothing.
			v.early = nil
			for range 10 * maxInvites {
				assert.NoError(t, v.Control(pml.Control{Kind: pml.ControlInvite, From: 1, Data: inviteBody{kind: inviteGivenUp}.encode()}))
			}
			assert.Len(t, v.early, 1)
			v.early = nil
			return nil
		})
	})
}

// noInvites checks that CreateGroup has left no state at a rank.
func noInvites(w *Comm) {
	left := locked(w, func() string {
		if v := w.job.invites; len(v.waiting)+len(v.leading)+len(v.early)+len(v.missed)+len(v.asks) > 0 {
			return fmt.Sprintf("left: %+v", *v)
		}
		return ""
	})
	if left != "" {
		failf("%s", left)
	}
}

// GroupsGivenUp makes CreateGroup calls in which the contexts of some ranks end at random moments,
// and uses the communicators, as SplitsGivenUp does.
func GroupsGivenUp(w *Comm, rounds int, seed uint64) (unequal int) {
	rng := rand.New(rand.NewPCG(seed, uint64(w.Rank())))
	size := w.Size()
	for i := range rounds {
		parent := must(w.Dup())
		view := parent
		ctx, cancel := context.WithCancel(context.Background())
		if rng.IntN(size) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(20+rng.IntN(200))*time.Microsecond)
			view = parent.WithContext(ctx)
		}
		time.Sleep(time.Duration(rng.IntN(100)) * time.Microsecond)
		n, err := view.CreateGroup(w.Group(), i%3) // one that ends at once does not count
		cancel()
		var with []error
		var barrier error
		if n != nil {
			with, barrier = useSplit(n, i%2 == 0)
			check(n.Free())
		}
		check(parent.Free())
		has := make([]int, size)
		check(Allgather(w, []int{b2i(n != nil)}, has))
		sum := 0
		for _, h := range has {
			sum += h
		}
		unequal += b2i(sum > 0 && sum < size)
		if n == nil {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrComm) && !errors.Is(err, ErrProcFailed) {
				failf("call %d: %w", i, err)
			}
			continue
		}
		for r, err := range with {
			if has[r] == 1 && err != nil || has[r] == 0 && !errors.Is(err, ErrComm) {
				failf("call %d: with rank %d, which has %d: %w", i, r, has[r], err)
			}
		}
		if sum == size && barrier != nil || sum < size && !errors.Is(barrier, ErrComm) {
			failf("call %d: barrier (%v have a communicator): %w", i, has, barrier)
		}
	}
	check(w.Barrier())
	noInvites(w)
	if s := strays(w); s != "" {
		failf("%s", s)
	}
	return unequal
}

// TestGroupsGivenUpAtRandomMoments: no call hangs, and nothing is left.
func TestGroupsGivenUpAtRandomMoments(t *testing.T) {
	for _, n := range []int{2, 3, 4} {
		run(t, n, func(w *Comm) {
			if unequal := GroupsGivenUp(w, SplitRounds(200), 11); w.Rank() == 0 {
				t.Logf("%d ranks: %d unequal", n, unequal)
			}
		})
	}
}

// TestInviteForParentThatIsNeverMadeIsDeclined: the INVITE arrives while the rank is in the
// collective that could make the parent. No other rank says that the parent was not made.
func TestInviteForParentThatIsNeverMadeIsDeclined(t *testing.T) {
	run(t, 2, func(w *Comm) {
		s, v := must(w.begin(blocking, calls.Split, nil)), w.job.invites // takes the lock
		if w.Rank() == 1 {
			w.contribute(s, splitMember{})
			parent := w.job.pml.Propose(w.members)
			parent.End()
			key := inviteKey{parent: parent.ID, leader: 0, tag: 3}
			check(v.invited(invite{key: key, givenUp: 1}))
			assert.Len(t, v.early, 1)
		}
		w.endCollective(s)
		assert.Zero(t, locked(w, func() int { return len(v.early) }))
	})
}

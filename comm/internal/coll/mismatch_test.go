package coll

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/request"
)

// beginAs begins a collective with a signature.
func (t *Team) beginAs(call calls.ID, root, agreed int, inPlace bool) *Schedule {
	s := t.Begin(Blocking, call, root)
	s.agreed, s.inPlace = agreed, inPlace
	return s
}

// TestMismatchProbe: ranks that wait for each other in calls that do not match get errors.
func TestMismatchProbe(t *testing.T) {
	for name, f := range map[string]struct {
		begin  func(t *Team) *Schedule
		reason Reason
	}{
		"another root": {func(t *Team) *Schedule { return t.beginAs(calls.Bcast, 1, 10, false) }, Differs},
		"other length": {func(t *Team) *Schedule { return t.beginAs(calls.Bcast, 0, 20, false) }, Lengths},
		"another call": {func(t *Team) *Schedule { return t.beginAs(calls.Reduce, 0, 10, false) }, Differs},
		"another kind": {func(t *Team) *Schedule { return t.beginAs(calls.Bcast, 0, 10, true) }, Lengths},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, late=%v", name, late), func(t *testing.T) {
				w, teams := newTeams(3, nil)
				for _, team := range teams[1:] {
					team.beginAs(calls.Bcast, 0, 10, false)
				}
				if !late {
					f.begin(teams[0])
				}
				r := teams[1].irecv(make([]byte, 10), 0, 0)
				teams[1].isend(pattern(1000, 1), 0, 0)
				third := teams[2].irecv(make([]byte, 10), 1, 0)
				w.settle()
				for _, rank := range []int{1, 2} { // the other rank may just be late
					w.pmls[rank].Arm()
					w.pmls[rank].Progress()
				}
				require.Empty(t, w.flying, "a rank probes when it sleeps for the second time")
				w.sleep(1, 2)
				require.Len(t, w.flying, 2, "each rank that is waited for is probed")
				w.settle()
				w.sleep(1, 2)
				require.Empty(t, w.flying, "once")
				if late {
					require.Equal(t, request.Active, r.State())
					f.begin(teams[0])
				}
				requireRevokedError(t, teams[0].enter(), 1, f.reason)
				w.settle()
				requireRevoked(t, r, 0, f.reason)
				requireRevoked(t, third, 0, f.reason)
				requireClean(t, w)
			})
		}
	}
}

// TestMismatchProbeOfLateRank: a rank that makes the same call later does not answer.
func TestMismatchProbeOfLateRank(t *testing.T) {
	w, teams := newTeams(2, nil)
	s := teams[1].Begin(Blocking, calls.Bcast, 0)
	r := teams[1].irecv(make([]byte, 10), 0, 0)
	w.sleep(1, 1)
	w.settle()
	require.Len(t, teams[0].probes, 1)
	teams[0].Begin(Blocking, calls.Bcast, 0)
	require.NoError(t, teams[0].enter())
	require.Empty(t, teams[0].probes)
	teams[0].isend(pattern(10, 1), 1, 0).Abandon()
	w.settle()
	requireReceived(t, r)
	s.Leave()
	require.Empty(t, s.probed)
	requireClean(t, w)
}

// TestMismatchProbeOfFinishedCollective: a rank that has finished the collective answers so. The
// answer ends only receives whose message has not come.
func TestMismatchProbeOfFinishedCollective(t *testing.T) {
	for _, sends := range []bool{false, true} {
		for _, removed := range []bool{false, true} {
			w, teams, s := inCollective(2, nil)
			r := teams[1].irecv(make([]byte, 10), 0, 0)
			w.sleep(1)
			if sends {
				teams[0].isend(pattern(10, 1), 1, 0).Abandon()
			}
			s[0].Leave()
			if removed {
				teams[0].Remove()
			}
			w.settle()
			if sends {
				requireReceived(t, r)
				require.NoError(t, s[1].failed())
				require.Empty(t, s[1].probed, "the rank may be probed again")
			} else {
				requireRevoked(t, r, 0, map[bool]Reason{false: Finished, true: Freed}[removed])
			}
			requireClean(t, w)
		}
	}
}

// TestMismatchProbeIsAnsweredAtTheEnd: a rank answers the probes that it keeps, and later ones,
// when it frees the communicator or is in Finalize.
func TestMismatchProbeIsAnsweredAtTheEnd(t *testing.T) {
	for name, end := range map[string]struct {
		reason Reason
		sent   Reason // by the rank that probed, to the others
		end    func(t *Team)
	}{
		"freed":     {Freed, Unfit, (*Team).Remove},
		"finalized": {Finalized, Lost, func(t *Team) { t.p.Leave(request.ErrProcFailed) }},
	} {
		for _, sends := range []bool{false, true} {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s sends=%v before=%v", name, sends, before), func(t *testing.T) {
					w, teams := newTeams(3, nil)
					teams[0].Begin(Blocking, calls.Scan, NoRoot)
					s := teams[1].Begin(Blocking, calls.Scan, NoRoot)
					s.steps = make([]step, 1)
					var waits taker
					if sends && end.reason == Finalized {
						waits = teams[1].isend(pattern(1000, 1), 2, 0)
					} else {
						waits = teams[1].irecv(make([]byte, 10), 2, 0)
					}
					w.settle()
					if !before {
						end.end(teams[2])
					}
					w.sleep(1)
					w.settle()
					if before {
						require.Len(t, teams[2].probes, 1)
						require.Equal(t, request.Active, waits.State())
						end.end(teams[2])
						require.Empty(t, teams[2].probes)
						w.settle()
					}
					requireRevokedError(t, s.failed(), 2, end.reason)
					require.Equal(t, 1, s.next)
					s.Revoke(Failed)
					w.settle()
					requireRevokedError(t, teams[0].errorOf(0), 2, end.sent)
					if r, ok := waits.(*pml.RecvRequest); ok {
						requireRevoked(t, r, 2, end.reason)
					}
				})
			}
		}
	}
}

// TestMismatchProbeOfRemovedContext: a removed context still exists while receives are posted in
// it, but no collective begins there.
func TestMismatchProbeOfRemovedContext(t *testing.T) {
	w, teams := newTeams(2, nil)
	kept := teams[0].irecv(make([]byte, 10), 1, 7)
	teams[0].Remove()
	teams[1].Begin(Blocking, calls.Scan, NoRoot)
	r := teams[1].irecv(make([]byte, 10), 0, 0)
	w.sleep(1)
	w.settle()
	requireRevoked(t, r, 0, Freed)
	kept.Cancel()
	requireClean(t, w)
}

// TestMismatchProbeWithoutSleep: a rank that never sleeps probes too.
func TestMismatchProbeWithoutSleep(t *testing.T) {
	w, teams := newTeams(2, nil)
	teams[1].Begin(Blocking, calls.Scan, NoRoot)
	teams[1].irecv(make([]byte, 10), 0, 0)
	for range 1 << 20 {
		w.pmls[1].Progress()
	}
	require.Empty(t, w.flying, "whatever the number of turns, no time has passed")
	for range 2 {
		w.now += int64(time.Second)
		for range 1 << 11 {
			w.pmls[1].Progress()
		}
	}
	require.Len(t, w.flying, 1)
}

// TestMismatchProbeBesideOtherTraffic: user messages, and collectives of another communicator,
// neither delay nor hasten a probe. A message of the collective delays it.
func TestMismatchProbeBesideOtherTraffic(t *testing.T) {
	for _, sleeps := range []bool{false, true} {
		w, group, worlds := newWire(2, nil)
		var teams, others []*Team
		for rank, p := range w.pmls {
			teams = append(teams, NewTeam(p, teamContext, group, rank, testOwner{}))
			others = append(others, NewTeam(p, 3, group, rank, testOwner{}))
			teams[rank].hub.Patience, others[rank].hub.Patience = int64(100*time.Millisecond), int64(100*time.Millisecond)
		}
		busy := func(millis int) (probes int) {
			for range millis {
				w.now += int64(time.Millisecond)
				s := others[1].Begin(Blocking, calls.Exscan, NoRoot)
				takers := []taker{others[1].irecv(make([]byte, 8), 0, s.seq), w.pmls[1].Irecv(worlds[1], make([]byte, 8), 1, 0, 7, "recv")}
				others[0].Begin(Blocking, calls.Exscan, NoRoot).Leave()
				others[0].isend(pattern(8, 1), 1, s.seq).Abandon()
				w.pmls[0].Isend(worlds[0], pattern(8, 1), 1, 7, pml.Standard, "send").Abandon()
				w.settle()
				for _, r := range takers {
					requireReceived(t, r)
				}
				s.Leave()
				for range 1 << 11 {
					w.pmls[1].Progress()
				}
				if sleeps {
					w.pmls[1].Arm()
					w.pmls[1].Progress()
				}
				for _, f := range w.flying {
					probes += b2i(f.tag == tagMismatchProbe)
				}
			}
			return probes
		}
		teams[1].Begin(Blocking, calls.Scan, NoRoot)
		own := teams[1].irecv(make([]byte, 8), 0, 0)
		teams[1].irecv(make([]byte, 8), 0, 0)
		require.Zero(t, busy(90), "it may still come")
		teams[0].Begin(Blocking, calls.Scan, NoRoot)
		teams[0].isend(pattern(8, 2), 1, 0).Abandon()
		w.settle()
		requireReceived(t, own)
		require.Zero(t, busy(90), "the collective goes on")
		require.Equal(t, 1, busy(200))
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// startOf starts a persistent collective that receives one message, and returns its request.
func startOf(t *testing.T, team *Team, source int) (*Schedule, request.Request) {
	t.Helper()
	team.hub.background = func(int) {}
	s := keepOf(team)
	s.steps = []step{{kind: stepRecv, peer: int32(source), a: make([]byte, 10)}}
	s.InitPersistent()
	r := s.Handle()
	require.NoError(t, r.Start())
	return s, r
}

// TestProbeOfStart: a rank answers a probe for a start if it has freed the request, or else when it
// frees it. A rank whose Init call is not over, or that has not started, does not answer.
func TestProbeOfStart(t *testing.T) {
	for _, when := range []string{"freed", "freed with its communicator", "freed later", "freed after a start", "Init has failed"} {
		t.Run(when, func(t *testing.T) {
			w, teams := newTeams(3, nil)
			var init, kept *Schedule
			if when == "Init has failed" {
				init = teams[0].Begin(Persistent, calls.Scan, NoRoot)
			} else {
				kept = keepOf(teams[0])
			}
			keepOf(teams[2])
			s, r := startOf(t, teams[1], 0)
			switch when {
			case "freed":
				kept.free()
			case "freed with its communicator":
				kept.free()
				teams[0].Remove()
			}
			w.sleep(1)
			require.Len(t, w.flying, 1)
			w.settle()
			if when != "freed" && when != "freed with its communicator" {
				require.Equal(t, request.Active, s.State(), "the rank is only late")
				w.sleep(1)
				require.Empty(t, w.flying, "it probes once a start")
			}
			switch when {
			case "freed after a start":
				teams[0].isend(pattern(10, 1), 1, kept.tag).Abandon()
				kept.Release()
				w.settle()
				_, err := r.Wait()
				require.NoError(t, err, "the message comes before the answer")
				require.NoError(t, r.Start())
				w.sleep(1)
				w.settle()
			case "freed later":
				kept.Release()
				w.settle()
			case "Init has failed":
				init.Leave()
				w.settle()
			}
			_, err := r.Wait()
			require.ErrorContains(t, err, "rank 0 has freed its request")
			w.settle()
			requireRevokedError(t, teams[2].kept[0].failed(), 0, Withdrawn)
			require.NoError(t, r.Start())
			_, err = r.Wait()
			require.ErrorContains(t, err, "rank 0 has freed its request", "all later starts fail too")
			requireClean(t, w)
		})
	}
}

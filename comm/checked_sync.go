package comm

import (
	"fmt"

	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/pml"
)

// syncChoice chooses the standard sends that checked mode makes synchronous. MPI lets a standard
// send wait for its receive (MPI 4.1, section 3.5). So a program that hangs with such sends relies
// on buffering, and may hang without checked mode too, with longer messages or another transport.
// The engine's lock guards it.
type syncChoice struct {
	all   bool
	seed  uint64
	count uint64 // of the rank's standard sends
}

func newSyncChoice(mode tunable.CheckMode, seed int64) syncChoice {
	return syncChoice{all: mode == tunable.CheckStrict, seed: uint64(seed)}
}

// next chooses for the rank's next standard send. It takes about one in four. The choice depends on
// the number of the send, not on the rank: ranks that send to each other in a cycle hang only if
// all of these sends are synchronous.
func (s *syncChoice) next() bool {
	s.count++
	x := (s.seed<<32 + s.count) * 0x9e3779b97f4a7c15 // the constants of SplitMix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return s.all || x>>62 == 0
}

// String names the setting that repeats the choice.
func (s *syncChoice) String() string {
	if s.all {
		return "check=strict"
	}
	return fmt.Sprintf("check.seed=%d", s.seed)
}

// sendMode is the mode of a send that the user has made in a mode. Lock held.
func (k *checker) sendMode(w *watch, mode pml.Mode) pml.Mode {
	if w.madeSync = mode == pml.Standard && k.sends.next(); w.madeSync {
		return pml.Synchronous
	}
	return mode
}

// madeSynchronous names the setting that has made a send synchronous, or "" if the send is as the
// user has made it. Lock held.
func (j *job) madeSynchronous(p pml.Pending) string {
	if w, ok := p.Request.Auditor().(*watch); ok && p.Sends && w.madeSync {
		return j.check.sends.String()
	}
	return ""
}

package rails

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/comm/internal/userlog"
)

// A module may be absent at the start: its device or address is missing, or down. It is open
// nevertheless, and the rank's card says that it is absent. Peers make no endpoint to it at first.
// The layer above probes it from time to time, and uses it once a probe was answered. If no other
// rail suffices, Await waits for one.

// ErrAbsent: required modules are absent, and may come.
var ErrAbsent = errors.New("no rail is there yet")

// whyAbsent is why a module cannot be used now; nil if it can.
func (r *Rails) whyAbsent(l module) error {
	if l.absent == nil {
		return nil
	}
	return l.absent(r.cfg.Client == nil || LocalRanks(r.cfg.Client) < r.cfg.Env.Size)
}

// whyAllAbsent is why all modules of a transport are absent; nil if one is there.
func (r *Rails) whyAllAbsent(name string) (err error) {
	for i, l := range r.list {
		if l.transport == name {
			why := r.whyAbsent(l)
			if why == nil {
				return nil
			}
			if r.isFurther(i) {
				continue
			}
			why = fmt.Errorf("rail %s: %w", l.module.Attrs().Name, why)
			if err != nil {
				why = fmt.Errorf("%w; %w", err, why)
			}
			err = why
		}
	}
	return err
}

// Suffice is why the job cannot go on without the missing transports and absent modules; nil if the
// others lead to every other rank, as far as is known before the ranks' cards are read. The error
// Is ErrAbsent if a module that comes may change that. The caller holds the lock.
func (r *Rails) Suffice() error {
	lacking, mayCome := r.missing, false
	for _, t := range r.allowed {
		if why := r.whyAllAbsent(t.Name); why != nil {
			if chosen := transport.Chosen(r.settings(), t.Choices...); chosen != "" {
				why = fmt.Errorf("%s: %w", chosen, why)
			}
			lacking, mayCome = append(lacking[:len(lacking):len(lacking)], missing{t, why}), true
		}
	}
	err := r.mustSuffice(lacking)
	if err != nil && mayCome {
		return absentError{err}
	}
	return err
}

// absentError Is ErrAbsent.
type absentError struct{ error }

func (absentError) Is(target error) bool { return target == ErrAbsent }
func (e absentError) Unwrap() error      { return e.error }

const (
	// awaitPeriod is how often Await looks for a module.
	awaitPeriod = 50 * time.Millisecond
	// noticeAfter is when Await logs that it waits.
	noticeAfter = 2 * time.Second
)

// Await waits until the modules suffice, for at most the grace time. why is the error of Open that
// Is ErrAbsent. The caller does not hold the lock.
func (r *Rails) Await(why error) error {
	grace := r.settings().Duration("pml.grace")
	if grace <= 0 {
		return why
	}
	noticed := false
	for begin := time.Now(); time.Since(begin) < grace; {
		time.Sleep(min(awaitPeriod, grace))
		r.cfg.Lock.Lock()
		why = r.Suffice()
		r.cfg.Lock.Unlock()
		if !errors.Is(why, ErrAbsent) {
			return why
		}
		if !noticed && time.Since(begin) >= noticeAfter && r.cfg.Env.LocalRank == 0 {
			noticed = true
			r.cfg.Log.Log(slog.LevelWarn, fmt.Sprintf("waiting for a rail, for up to %v (pml.grace): %s", grace, userlog.OneLine(why)))
		}
	}
	return fmt.Errorf("waited %v for a rail (pml.grace): %w", grace, why)
}

package comm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime/pprof"
	"strconv"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/comm/internal/record"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/profile"
)

// recording is what a rank records of itself, by the settings profile and cpuprofile. The rank
// writes it in Finalize, when it fails, and when it is told to end.
type recording struct {
	started time.Time // when Init returned
	// profile and profileDir are unset without the setting profile. The engine's lock guards them.
	profile    *record.Profile
	profileDir string
	isWritten  bool
	appNanos   int64 // until Finalize; 0 before
	cpu        *os.File
	signals    chan os.Signal
}

// off is the value of a setting that names no directory.
const off = "off"

// startRecording begins what the settings ask for, before any call. local: other ranks are in the
// same process.
func (j *job) startRecording(local bool) error {
	r := &recording{started: time.Now()}
	if dir := j.settings.String("profile"); dir != off {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		r.profile, r.profileDir = record.NewProfile(), dir
		j.eng.Calls = calls.New(r.profile, false)
	}
	if dir := j.settings.String("cpuprofile"); dir != off && !local {
		if err := r.startCPU(dir, j.rank); err != nil {
			return fmt.Errorf("cpuprofile: %w", err)
		}
	}
	if r.profile == nil && r.cpu == nil {
		return nil
	}
	j.recording = r
	if !local {
		r.signals = make(chan os.Signal, 1)
		signal.Notify(r.signals, syscall.SIGTERM)
		go j.awaitTerm()
	}
	return nil
}

// onTransfer is what the point-to-point layer tells of transfers; nil if nothing is recorded.
func (j *job) onTransfer() func(begins bool) {
	if j.eng.Calls == nil {
		return nil
	}
	return j.eng.Calls.Transfer
}

// startCPU begins a CPU profile. Goroutines that the caller starts inherit the label of the rank.
func (r *recording) startCPU(dir string, rank int) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("cpu.%d.pprof", rank)))
	if err != nil {
		return err
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels("rank", strconv.Itoa(rank))))
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	r.cpu = f
	return nil
}

// awaitTerm writes what was recorded when the launcher ends the rank, and then lets the signal have
// its effect.
func (j *job) awaitTerm() {
	if _, told := <-j.recording.signals; !told {
		return
	}
	_ = j.writeRecordsSoon("it was told to end")
	signal.Stop(j.recording.signals)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
}

// writeRecordsSoon is writeRecords for a rank that fails. It does not wait long for the lock, which
// a call that hangs may hold.
func (j *job) writeRecordsSoon(why string) error {
	if j.recording == nil {
		return nil
	}
	for range 100 {
		if j.eng.TryLock() {
			defer j.eng.Unlock()
			return j.writeRecords(why)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// endAppTime says that the program proper ends here, because Finalize begins. Lock held.
func (j *job) endAppTime() {
	if r := j.recording; r != nil && r.appNanos == 0 {
		r.appNanos = int64(time.Since(r.started))
	}
}

// writeRecords writes what was recorded, once. why says why the rank did not come to Finalize, ""
// if it did. Lock held.
func (j *job) writeRecords(why string) error {
	r := j.recording
	if r == nil || r.isWritten {
		return nil
	}
	r.isWritten = true
	j.endAppTime()
	var errs []error
	if r.profile != nil {
		errs = append(errs, j.writeProfile(why))
	}
	if r.cpu != nil {
		pprof.StopCPUProfile()
		errs = append(errs, r.cpu.Close())
	}
	return errors.Join(errs...)
}

// stopRecording ends the wait for signals.
func (j *job) stopRecording() {
	if r := j.recording; r != nil && r.signals != nil {
		signal.Stop(r.signals)
		close(r.signals)
		r.signals = nil
	}
}

// errorsOf is the number of errors of a rail, of all kinds.
func errorsOf(c bml.ErrorCounts) uint64 { return c.Path + c.Device + c.Timeout + c.Protocol }

// writeProfile writes the file of the rank.
func (j *job) writeProfile(why string) error {
	r := j.recording
	host, _ := os.Hostname()
	f := profile.File{
		Rank: j.rank, Size: j.size, Host: host, PID: os.Getpid(), Command: os.Args,
		Started: r.started.Unix(), AppNanos: r.appNanos, Error: why,
	}
	r.profile.Fill(&f, j.eng.Calls)
	for _, t := range j.pml.Traffic() {
		f.Sent = append(f.Sent, profile.Traffic(t))
	}
	stats := reflect.ValueOf(j.pml.Stats())
	for i := range stats.NumField() {
		if n, isCount := stats.Field(i).Interface().(uint64); isCount && n > 0 {
			f.Protocols = append(f.Protocols, profile.Named{Name: stats.Type().Field(i).Name, Count: n})
		}
	}
	for _, rail := range j.pml.Rails() {
		errs := errorsOf(rail.LocalErrors) + errorsOf(rail.PathErrors) + errorsOf(rail.RemoteErrors)
		f.Rails = append(f.Rails, profile.Rail{
			Peer: rail.Peer, Name: rail.Rail, State: rail.State, First: rail.First, Health: rail.Health, Errors: errs,
		})
	}
	file, err := os.Create(profile.Path(r.profileDir, j.rank))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return errors.Join(f.Write(file), file.Close())
}

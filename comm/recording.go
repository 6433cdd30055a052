package comm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/pml"
)

// recording is what a rank records of itself, by the settings profile, trace and cpuprofile. The
// rank writes it in Finalize, when it fails, and when it is told to end.
type recording struct {
	started time.Time // when Init returned
	// profile and profileDir are unset without the setting profile. The engine's lock guards them.
	profile    *record.Profile
	profileDir string
	// The same for the setting trace.
	trace     *record.Trace
	traceDir  string
	clocks    hostClocks
	isWritten bool
	appNanos  int64 // until Finalize; 0 before
	cpu       *os.File
	signals   chan os.Signal
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
	}
	if dir := j.settings.String("trace"); dir != off {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return fmt.Errorf("trace: %w", err)
		}
		r.trace, r.traceDir = record.NewTrace(int(j.settings.Int("trace.events"))), dir
	}
	switch {
	case r.profile != nil && r.trace != nil:
		j.eng.Calls = calls.New(record.Both{Profile: r.profile, Trace: r.trace}, true)
	case r.trace != nil:
		j.eng.Calls = calls.New(r.trace, true)
	case r.profile != nil:
		j.eng.Calls = calls.New(r.profile, false)
	}
	if r.trace != nil {
		r.trace.Use(j.eng.Calls)
	}
	if dir := j.settings.String("cpuprofile"); dir != off && !local {
		if err := r.startCPU(dir, j.rank); err != nil {
			return fmt.Errorf("cpuprofile: %w", err)
		}
	}
	if j.eng.Calls == nil && r.cpu == nil {
		return nil
	}
	j.recording = r
	if !local {
		r.signals = make(chan os.Signal, 1)
		signal.Notify(r.signals, syscall.SIGTERM)
		go j.awaitTerm(r.signals)
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

// tracer takes a trace of messages; nil if there is none.
func (j *job) tracer() pml.Tracer {
	if j.recording == nil || j.recording.trace == nil {
		return nil
	}
	return j.recording.trace
}

// dump writes the trace, also in the middle of the job. why is as for writeRecords. Lock held.
func (j *job) dump(why string) error {
	r := j.recording
	if r == nil || r.trace == nil {
		return nil
	}
	host, _ := os.Hostname()
	f := trace.File{
		Rank: j.rank, Size: j.size, Host: host, PID: os.Getpid(), Command: os.Args, Error: why, Clocks: r.clocks.compared,
	}
	r.trace.Fill(&f, int64(j.settings.Duration("trace.last")))
	return writeFile(trace.Path(r.traceDir, j.rank), f.Write)
}

// writeFile replaces a file in one step: until then, readers see the old one.
func writeFile(path string, write func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	err = errors.Join(write(out), out.Flush(), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
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
func (j *job) awaitTerm(signals chan os.Signal) {
	if _, told := <-signals; !told {
		return
	}
	_ = j.writeRecordsSoon("it was told to end")
	signal.Stop(signals)
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
	if r.trace != nil {
		errs = append(errs, j.dump(why))
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
		r.signals = nil // so that a second end does not close it again
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
	return writeFile(profile.Path(r.profileDir, j.rank), f.Write)
}

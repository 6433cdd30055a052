package comm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/comm/internal/record"
	"github.com/mpigo/mpigo/comm/internal/userlog"
	"github.com/mpigo/mpigo/internal/atomicfile"
	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/internal/profile"
	"github.com/mpigo/mpigo/internal/trace"
	"github.com/mpigo/mpigo/pml"
)

// recording is what a rank records under the settings profile, trace and cpuprofile. The rank
// writes it in Finalize, when it fails, and when a signal ends it.
type recording struct {
	started time.Time // when Init returned
	// profile and profileDir are unset if the setting profile is off. The engine's lock guards
	// them.
	profile    *record.Profile
	profileDir string
	// The same for the setting trace.
	trace    *record.Trace
	traceDir string
	// writing is held while a trace is written. It guards hasLast, which says that the trace at the
	// rank's end was written. An earlier trace must not replace that one.
	writing   sync.Mutex
	hasLast   bool
	clocks    hostClocks
	isWritten bool
	isWriting atomic.Bool // a goroutine that has the lock writes all records
	appNanos  int64       // until Finalize; 0 before
	cpu       *os.File
	signals   chan os.Signal
}

// ownJobID is the identity of a job without a launcher.
func ownJobID() string {
	return fmt.Sprintf("local-%d-%x", os.Getpid(), time.Now().UnixNano())
}

// off is the value of a setting that switches a record off.
const off = "off"

// startRecording begins the records that the settings ask for, before any call. local: other ranks
// are in the same process.
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
	return nil
}

// endSignals are the signals by which a launcher, a user at a terminal, or the terminal's closing
// end a process. Never written.
var endSignals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP}

// writeOnSignal begins to wait for a signal that ends the rank, which is a process. A signal that
// is ignored stays ignored.
func (j *job) writeOnSignal() {
	r := j.recording
	if r == nil {
		return
	}
	r.signals = make(chan os.Signal, 1)
	for _, sig := range endSignals {
		if !signal.Ignored(sig) {
			signal.Notify(r.signals, sig)
		}
	}
	go j.awaitSignal(r.signals, signalLimit)
}

// onTransfer returns the function that the point-to-point layer calls about transfers; nil if
// nothing is recorded.
func (j *job) onTransfer() func(begins bool) {
	if j.eng.Calls == nil {
		return nil
	}
	return j.eng.Calls.Transfer
}

// tracer returns the recorder of the message trace; nil if there is none.
func (j *job) tracer() pml.Tracer {
	if j.recording == nil || j.recording.trace == nil {
		return nil
	}
	return j.recording.trace
}

// tracing is the trace of the rank at a moment.
type tracing struct {
	j      *job
	why    string // as in writeRecords
	id     string
	clocks []trace.Clock
	events *record.Events
}

// newTracing makes room for a trace. It needs no lock.
func (j *job) newTracing(why string) *tracing {
	return &tracing{j: j, why: why, events: j.recording.trace.NewEvents()}
}

// take copies the current trace. Lock held.
func (t *tracing) take() {
	t.id = t.j.id
	t.clocks = slices.Clone(t.j.recording.clocks.compared)
	t.events.Copy(t.j.recording.trace)
}

// file makes the trace file from what take copied. It takes long for a long trace, and needs no
// lock.
func (t *tracing) file() *trace.File {
	host, _ := os.Hostname()
	f := &trace.File{
		Job: t.id, Rank: t.j.rank, Size: t.j.size, Host: host, PID: os.Getpid(), Command: os.Args, Error: t.why, Clocks: t.clocks,
	}
	t.events.Fill(f, int64(t.j.settings.Duration("trace.last")))
	return f
}

// writeTrace writes a trace of the rank. It does nothing if isLast is false and the last trace was
// written already.
func (r *recording) writeTrace(f *trace.File, isLast bool) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.hasLast && !isLast {
		return nil
	}
	r.hasLast = r.hasLast || isLast
	return atomicfile.Write(trace.Path(r.traceDir, f.Rank), recordMode, f.Write)
}

// recordMode is the mode of the files, before the umask.
const recordMode = 0o666

var (
	errNoTrace = errors.New("the rank records no trace")
	errLocked  = errors.New("the rank holds its lock for too long")
)

// dumpTrace writes the trace while the job runs. locked calls a function with the lock, or reports
// false. dumpTrace makes and writes the file without the lock, because a file system may hang.
func (j *job) dumpTrace(locked func(func()) bool) error {
	if j.recording == nil || j.recording.trace == nil {
		return errNoTrace
	}
	t := j.newTracing("")
	if !locked(t.take) {
		return errLocked
	}
	return j.recording.writeTrace(t.file(), false)
}

// startCPU begins a CPU profile. Goroutines that the caller starts inherit the label of the rank.
func (r *recording) startCPU(dir string, rank int) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	f, err := atomicfile.Create(filepath.Join(dir, fmt.Sprintf("cpu.%d.pprof", rank)), recordMode)
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

// signalLimit bounds the time from a signal to its effect. A long trace takes seconds.
const signalLimit = 30 * time.Second

// awaitSignal writes the records when a signal arrives, and then lets the signal end the rank. It
// does so at the latest after the given time, because a file system may hang.
func (j *job) awaitSignal(signals chan os.Signal, limit time.Duration) {
	sig, told := <-signals
	if !told {
		return
	}
	j.notices.isEnding.Store(true)
	written := make(chan struct{})
	go func() {
		defer close(written)
		j.writeRecordsSoon("it was ended by a signal")
	}()
	select {
	case <-written:
	case <-time.After(limit):
		j.log.Log(slog.LevelError, fmt.Sprintf("the records are lost: they were not written within %v", limit))
	}
	signal.Stop(signals)
	if s, ok := sig.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), s)
	}
}

// writeRecordsSoon is writeRecords for a rank that fails. It prints an error, because no call
// returns it.
func (j *job) writeRecordsSoon(why string) {
	if j.recording == nil {
		return
	}
	if err := j.tryWriteRecords(why); err != nil {
		j.log.Log(slog.LevelError, "the records are lost: "+userlog.OneLine(err))
	}
}

// tryWriteRecords is writeRecords with a limited wait for the lock, which a hanging call may hold.
// It waits longer if Finalize has the lock and writes.
func (j *job) tryWriteRecords(why string) error {
	isWritten := false
	for i, isWriting := 0, false; i < 100 || isWriting; i++ {
		isWriting = j.recording.isWriting.Load()
		isWritten = isWritten || isWriting
		if j.eng.TryLock() {
			defer j.eng.Unlock()
			return j.writeRecords(why)
		}
		time.Sleep(time.Millisecond)
	}
	if isWritten {
		return nil // Finalize has the error
	}
	return errLocked
}

// endAppTime records that the program proper ends, because Finalize begins. Lock held.
func (j *job) endAppTime() {
	if r := j.recording; r != nil && r.appNanos == 0 {
		r.appNanos = int64(time.Since(r.started))
	}
}

// writeRecords writes the records: once, and again in Finalize, because a program may continue
// after a signal. why says why the rank did not reach Finalize; it is "" in Finalize. Lock held.
func (j *job) writeRecords(why string) error {
	r := j.recording
	if r == nil || r.isWritten && why != "" {
		return nil
	}
	r.isWritten = true
	r.isWriting.Store(true)
	defer r.isWriting.Store(false)
	var errs []error
	if r.profile != nil {
		errs = append(errs, j.writeProfile(why))
	}
	if r.trace != nil {
		t := j.newTracing(why)
		t.take()
		errs = append(errs, r.writeTrace(t.file(), true))
	}
	if r.cpu != nil {
		pprof.StopCPUProfile()
		errs = append(errs, r.cpu.Close())
		r.cpu = nil
	}
	return errors.Join(errs...)
}

// stopRecording stops waiting for signals.
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
		Job: j.id, Rank: j.rank, Size: j.size, Host: host, PID: os.Getpid(), Command: os.Args,
		Started: r.started.Unix(), AppNanos: r.appNanos, Error: why,
	}
	if f.AppNanos == 0 {
		f.AppNanos = int64(time.Since(r.started))
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
			Peer: rail.Peer, Name: rail.Rail, State: rail.State, First: rail.First, Health: rail.Health, Errors: errs, Bytes: rail.Bytes,
		})
	}
	return atomicfile.Write(profile.Path(r.profileDir, j.rank), recordMode, f.Write)
}

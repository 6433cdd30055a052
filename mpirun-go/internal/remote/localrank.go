package remote

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// localRank is a rank on the daemon's host, with its streams from and to the launcher.
type localRank struct {
	proc *procs.Proc
	in   [streamsEnd]*inbox  // from the launcher: PMI, introspection, stdin
	out  [streamsEnd]*outbox // to the launcher: PMI, introspection, stdout, stderr
}

// onStart starts a rank.
func (d *daemon) onStart(f frame) error {
	spec, err := decodeSpec(f.payload)
	if err != nil {
		return err
	}
	if d.ranks[f.rank] != nil {
		return fmt.Errorf("%w: rank %d is started twice", ErrProtocol, f.rank)
	}
	if d.startFailure != nil { // the launcher requested this start before it learned of the failure
		d.post(kindFailed, 0, f.rank, d.startFailure.encode())
		return nil
	}
	spec.Rank = int(f.rank)
	spec.Env = addLocalVariables(spec.Env, os.Environ())
	proc, fail := d.startProcess(spec)
	if fail != nil {
		d.startFailure = fail
		d.post(kindFailed, 0, f.rank, fail.encode())
		return nil
	}
	h := &localRank{proc: proc}
	d.ranks[f.rank] = h
	for _, s := range connStreams {
		h.in[s], h.out[s] = openInbox(d.post, s, f.rank), openOutbox(d.post, s, f.rank)
	}
	h.out[streamStdout], h.out[streamStderr] = openOutbox(d.post, streamStdout, f.rank), openOutbox(d.post, streamStderr, f.rank)
	d.post(kindStarted, 0, f.rank, started{pid: proc.PID, cpus: proc.CPUs, unbound: proc.Unbound}.encode())

	h.forward(streamPMI, proc.PMI)
	h.forward(streamIntrospect, proc.Introspect)
	go sendOutput(proc.Stdout, h.out[streamStdout])
	go sendOutput(proc.Stderr, h.out[streamStderr])
	if proc.Stdin != nil {
		in := openInbox(d.post, streamStdin, f.rank)
		h.in[streamStdin] = in
		go func() {
			_, err := io.Copy(proc.Stdin, in)
			_ = proc.Stdin.Close()
			in.discard()
			if err != nil { // the rank does not read: stop the launcher's input
				d.post(kindEnd, streamStdin, f.rank, nil)
			}
		}()
	}
	go func() {
		exit, place, err := proc.Wait()
		e := exitReport{exit: exit, order: place}
		if err != nil {
			e.problem = err.Error()
		}
		d.post(kindExit, 0, f.rank, e.encode())
	}()
	return nil
}

// A start fails with ETXTBSY while a process between fork and exec, or one that receives the same
// program into the same cache, has the program open for writing. Starts are repeated for at most
// 0.2 s in that case.
const (
	maxBusyTries = 20
	busyWait     = 10 * time.Millisecond
)

// whileBusy calls start again while it fails with ETXTBSY.
func whileBusy(start func() error) error {
	err := start()
	for tries := 0; errors.Is(err, syscall.ETXTBSY) && tries < maxBusyTries; tries++ {
		time.Sleep(busyWait)
		err = start()
	}
	return err
}

// startProcess starts a rank's process if its working directory exists.
func (d *daemon) startProcess(spec procs.Spec) (*procs.Proc, *failure) {
	if info, err := os.Stat(spec.Dir); spec.Dir != "" && (err != nil || !info.IsDir()) {
		why := "not a directory"
		if path := (*os.PathError)(nil); errors.As(err, &path) {
			why = path.Err.Error()
		}
		return nil, &failure{text: fmt.Sprintf("working directory %s: %s", spec.Dir, why)}
	}
	var proc *procs.Proc
	err := whileBusy(func() (err error) {
		proc, err = d.local.Start(spec)
		return err
	})
	if err == nil {
		return proc, nil
	}
	fail := &failure{path: spec.Path, text: err.Error()}
	if failed := (*procs.StartError)(nil); errors.As(err, &failed) {
		fail.text = failed.Err.Error()
	}
	errors.As(err, &fail.errno)
	return nil, fail
}

// forward forwards a stream that goes both ways, on two goroutines. A rank or a launcher that does
// not read blocks only one of them, with at most a window of data. The rank's connection is closed
// when the launcher closes its end.
func (h *localRank) forward(s stream, conn net.Conn) {
	in, out := h.in[s], h.out[s]
	go func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{conn}, make([]byte, 4<<10))
		_ = out.Close()
	}()
	go func() {
		_, _ = io.Copy(conn, in)
		in.discard()
		_ = conn.Close()
	}()
}

// sendOutput forwards one of the rank's outputs until it ends or its read deadline passes. After
// the deadline it forwards the data that the pipe holds.
func sendOutput(from procs.Output, to *outbox) {
	defer from.Close()
	_, err := io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_, _ = io.Copy(struct{ io.Writer }{to}, procs.Drain(from))
	}
	_ = to.Close()
}

// startError converts a failure to the error that the start would have returned on this host.
func (e failure) startError() error {
	if e.path == "" {
		return errors.New(printable([]byte(e.text)))
	}
	err, text := error(e.errno), printable([]byte(e.text))
	switch {
	case e.errno == 0:
		err = errors.New(text)
	case text != "" && text != err.Error():
		err = &procs.DetailedError{Text: text, Err: err}
	}
	return &procs.StartError{Path: e.path, Err: err}
}

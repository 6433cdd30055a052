package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/mpigo/mpigo/internal/procstate"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// remoteRank is the launcher's view of a rank on another host.
type remoteRank struct {
	host    *Host
	rank    uint32
	conns   [streamsEnd]*streamConn // PMI and introspection
	stdin   *outbox                 // nil unless the rank has a standard input
	outputs [2]outputPipe
	started chan startResult // has room for the one result
	exited  chan struct{}
	report  exitReport // written before exited is closed

	asking chan struct{}        // has an element while a call of State waits for an answer
	states chan procstate.State // has room for one answer
}

type startResult struct {
	started
	err error
}

func newRemoteRank(h *Host, rank uint32, stdin bool) *remoteRank {
	cut := sync.OnceFunc(func() { h.post(kindCutOutput, 0, rank, nil) })
	k := &remoteRank{
		host: h, rank: rank,
		outputs: [2]outputPipe{{openInbox(h.post, streamStdout, rank), cut}, {openInbox(h.post, streamStderr, rank), cut}},
		started: make(chan startResult, 1), exited: make(chan struct{}), states: make(chan procstate.State, 1),
		asking: make(chan struct{}, 1),
	}
	for _, s := range connStreams {
		conn := openConn(h.post, s, rank)
		k.conns[s] = &conn
	}
	if stdin {
		k.stdin = openOutbox(h.post, streamStdin, rank)
	}
	return k
}

// awaitStart waits for the result of the rank's start. k is nil if the host was lost before the
// request.
func (k *remoteRank) awaitStart() (*procs.Proc, error) {
	if k == nil {
		return nil, procs.ErrLost
	}
	var s startResult
	select {
	case s = <-k.started:
	case <-k.host.lostChan:
		s.err = procs.ErrLost
	}
	if s.err != nil {
		return nil, s.err
	}
	p := &procs.Proc{
		Rank: int(k.rank), PID: s.pid, CPUs: s.cpus, Unbound: printable([]byte(s.unbound)), PMI: k.conns[streamPMI], Introspect: k.conns[streamIntrospect],
		Stdout: k.outputs[0], Stderr: k.outputs[1], Remote: k,
	}
	if k.stdin != nil {
		p.Stdin = k.stdin
	}
	return p, nil
}

// Wait implements procs.Control.
func (k *remoteRank) Wait() (procs.Exit, int, error) {
	select {
	case <-k.exited:
	case <-k.host.lostChan:
		select {
		case <-k.exited: // the exit was reported before the loss
		default:
			return procs.Exit{}, 0, errors.Join(procs.ErrLost, k.host.lost)
		}
	}
	if k.report.problem != "" {
		return procs.Exit{}, 0, errors.New(printable([]byte(k.report.problem)))
	}
	return k.report.exit, k.report.order, nil
}

// Exiting implements procs.Control. The launcher cannot see that a process on another host is about
// to exit.
func (k *remoteRank) Exiting() bool {
	select {
	case <-k.exited:
		return true
	default:
		return false
	}
}

// State implements procs.Control. The answer may belong to an earlier call whose ctx has ended.
func (k *remoteRank) State(ctx context.Context) procstate.State {
	select {
	case k.asking <- struct{}{}:
		defer func() { <-k.asking }()
	case <-k.host.lostChan:
		return procstate.Unknown
	case <-ctx.Done():
		return procstate.Unknown
	}
	if ctx.Err() != nil {
		return procstate.Unknown // select may choose either of two ready cases
	}
	select {
	case <-k.states: // an answer that came too late
	default:
	}
	k.host.post(kindAskState, 0, k.rank, nil)
	select {
	case s := <-k.states:
		return s
	case <-k.host.lostChan:
	case <-ctx.Done():
	}
	return procstate.Unknown
}

// Signal implements procs.Control.
func (k *remoteRank) Signal(sig syscall.Signal) {
	k.host.post(kindSignal, 0, k.rank, appendNumber(nil, int(sig)))
}

// handle handles a frame about the rank. The caller holds mu of the host.
func (k *remoteRank) handle(f frame) error {
	switch f.kind {
	case kindStarted, kindFailed:
		var s startResult
		var err error
		if f.kind == kindStarted {
			s.started, err = decodeStarted(f.payload)
		} else {
			var e failure
			e, err = decodeFailure(f.payload)
			s.err = e.startError()
		}
		if err != nil {
			return err
		}
		select {
		case k.started <- s:
			return nil
		default:
			return fmt.Errorf("%w: rank %d was started twice", ErrProtocol, k.rank)
		}
	case kindExit:
		select {
		case <-k.exited:
			return fmt.Errorf("%w: rank %d exited twice", ErrProtocol, k.rank)
		default:
		}
		e, err := decodeExitReport(f.payload)
		if err != nil {
			return err
		}
		k.report = e
		close(k.exited)
		return nil
	case kindState:
		s, err := decodeNumber(f.payload, 127)
		if err != nil {
			return err
		}
		select {
		case k.states <- procstate.State(s):
		default: // no call waits for it
		}
		return nil
	case kindData, kindEnd, kindCredit:
		return k.onStream(f)
	}
	return fmt.Errorf("%w: a frame of kind %d", ErrProtocol, f.kind)
}

// onStream handles a frame of one of the rank's streams.
func (k *remoteRank) onStream(f frame) error {
	in := [streamsEnd]*inbox{streamStdout: k.outputs[0].inbox, streamStderr: k.outputs[1].inbox}[f.stream]
	out := [streamsEnd]*outbox{streamStdin: k.stdin}[f.stream]
	if conn := k.conns[f.stream]; conn != nil {
		in, out = conn.inbox, conn.outbox
	}
	delivered, err := deliver(in, out, f)
	switch {
	case delivered || err != nil:
		return err
	case f.kind == kindEnd && out != nil:
		out.fail(syscall.EPIPE)
		return nil
	}
	return fmt.Errorf("%w: stream %d", ErrProtocol, f.stream)
}

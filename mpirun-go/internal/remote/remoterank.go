package remote

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// far is a rank of another machine.
type remoteRank struct {
	host    *Host
	rank    uint32
	pmi     pmiConn
	stdin   *outbox // nil unless it is a pipe
	outputs [2]outputPipe
	started chan startResult // buffered, one place
	exited  chan struct{}
	report  exitReport // written before ended is closed
}

type startResult struct {
	pid int
	err error
}

func newRemoteRank(h *Host, rank uint32, stdin bool) *remoteRank {
	cut := sync.OnceFunc(func() { h.post(kindCutOutput, 0, rank, nil) })
	k := &remoteRank{
		host: h, rank: rank,
		pmi:     pmiConn{openInbox(h.post, streamPMI, rank), openOutbox(h.post, streamPMI, rank)},
		outputs: [2]outputPipe{{openInbox(h.post, streamStdout, rank), cut}, {openInbox(h.post, streamStderr, rank), cut}},
		started: make(chan startResult, 1), exited: make(chan struct{}),
	}
	if stdin {
		k.stdin = openOutbox(h.post, streamStdin, rank)
	}
	return k
}

// await waits until the rank has been started, or has not.
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
	p := &procs.Proc{Rank: int(k.rank), PID: s.pid, PMI: k.pmi, Stdout: k.outputs[0], Stderr: k.outputs[1], Remote: k}
	if k.stdin != nil {
		p.Stdin = k.stdin
	}
	return p, nil
}

// Wait is procs.Proc's.
func (k *remoteRank) Wait() (procs.Exit, int, error) {
	select {
	case <-k.exited:
	case <-k.host.lostChan:
		select {
		case <-k.exited: // before
		default:
			return procs.Exit{}, 0, errors.Join(procs.ErrLost, k.host.lost)
		}
	}
	if k.report.problem != "" {
		return procs.Exit{}, 0, errors.New(printable([]byte(k.report.problem)))
	}
	return k.report.exit, k.report.order, nil
}

// Ending is procs.Proc's. What the process is about to do, nobody knows here.
func (k *remoteRank) Exiting() bool {
	select {
	case <-k.exited:
		return true
	default:
		return false
	}
}

// Signal is procs.Proc's.
func (k *remoteRank) Signal(sig syscall.Signal) {
	k.host.post(kindSignal, 0, k.rank, appendNumber(nil, int(sig)))
}

// take deals with a frame about the rank. Its host's mu is held.
func (k *remoteRank) handle(f frame) error {
	switch f.kind {
	case kindStarted, kindFailed:
		var s startResult
		var err error
		if f.kind == kindStarted {
			s.pid, err = decodeNumber(f.payload, maxInt)
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
			return fmt.Errorf("%w: rank %d ended twice", ErrProtocol, k.rank)
		default:
		}
		e, err := decodeExitReport(f.payload)
		if err != nil {
			return err
		}
		k.report = e
		close(k.exited)
		return nil
	case kindData, kindEnd, kindCredit:
		return k.onStream(f)
	}
	return fmt.Errorf("%w: a frame of kind %d", ErrProtocol, f.kind)
}

// flow deals with a frame of one of the rank's streams.
func (k *remoteRank) onStream(f frame) error {
	in := [streamsEnd]*inbox{streamPMI: k.pmi.inbox, streamStdout: k.outputs[0].inbox, streamStderr: k.outputs[1].inbox}[f.stream]
	out := [streamsEnd]*outbox{streamPMI: k.pmi.outbox, streamStdin: k.stdin}[f.stream]
	taken, err := deliver(in, out, f)
	switch {
	case taken || err != nil:
		return err
	case f.kind == kindEnd && out != nil:
		out.fail(syscall.EPIPE)
		return nil
	}
	return fmt.Errorf("%w: stream %d", ErrProtocol, f.stream)
}

package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Lines on the agent's standard output before the first frame. The user's shell may print other
// lines before them.
const (
	wantLine   = "mpigo-agent want " // followed by a hash: requests this program
	daemonLine = "mpigo-daemon "     // followed by the protocol version: frames follow
)

// HostError means that a host cannot be reached or used, or was lost.
type HostError struct {
	Host    string
	Problem string // completes the sentence "host NAME …"
	Lost    error  // the reason of the loss; nil: use Problem
}

func (e *HostError) Error() string {
	if e.Lost != nil {
		return fmt.Sprintf("host %s was lost: %v", e.Host, e.Lost)
	}
	return fmt.Sprintf("host %s %s", e.Host, e.Problem)
}

// dial starts a daemon on a host, from the host with the name from ("": the launcher's). It returns
// when frames can be exchanged. dial calls progress at every sign of life, which also restarts the
// host's timeout. The error is of type *HostError.
func dial(from string, agent Agent, self Program, host string, timeout time.Duration, stop <-chan struct{}, progress func()) (*agentProcess, *bufio.Reader, error) {
	p, err := startAgent(from, agent, host, self.script())
	if err != nil {
		return nil, nil, &HostError{Host: host, Problem: fmt.Sprintf("%s: start the agent: %v", unreachable(from), err)}
	}
	progress() // a slow start of the agent does not count
	settled := make(chan struct{})
	timedOut := make(chan bool, 1) // gets one value: whether the timeout has passed
	var answer silenceTimer
	onProgress := func() {
		answer.alive.Store(true)
		progress()
	}
	go func() {
		ticker := time.NewTicker(tickInterval(timeout))
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if !answer.tick(1) {
					continue
				}
				p.kill()
				timedOut <- true
			case <-stop:
				p.kill()
				timedOut <- false
			case <-settled:
				timedOut <- false
			}
			return
		}
	}()
	reader := bufio.NewReaderSize(p.out, 64<<10)
	why := handshake(p, self, reader, p.in, onProgress)
	close(settled)
	switch {
	case <-timedOut:
		why = "did not answer within " + timeout.String() + " (--connect-timeout)" + outputText(p.output()) + p.hint()
	case why == "":
		onProgress()
		return p, reader, nil
	}
	p.kill()
	_, _ = p.in.Close(), p.out.Close()
	return nil, nil, &HostError{Host: host, Problem: why}
}

// maxPreambleBytes bounds the output of the user's shell before the first line of the protocol.
const maxPreambleBytes = 64 << 10

// handshake runs the protocol up to the first frame. It sends this program if the host requests it,
// and calls progress for each piece. It returns a text that says what is wrong, or "".
func handshake(p *agentProcess, self Program, out *bufio.Reader, in io.Writer, progress func()) string {
	for taken := 0; taken < maxPreambleBytes; {
		raw, err := out.ReadSlice('\n')
		taken += len(raw)
		line := strings.TrimRight(string(raw), "\r\n")
		remoteVersion, isDaemon := strings.CutPrefix(line, daemonLine)
		switch {
		case isDaemon && err == nil:
			if remoteVersion != fmt.Sprint(version) {
				return fmt.Sprintf("runs a daemon with protocol version %.20s, but this mpirun-go has version %d: install the same mpirun-go on both", printable([]byte(remoteVersion)), version)
			}
			return ""
		case line == wantLine+self.hash && err == nil:
			if err := self.send(progressWriter{in, progress}); err == nil {
				continue
			}
		default:
			p.addStdoutLine(printable(raw))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			how := p.exitText() // by then all of its output has arrived
			if p.reachedHost() {
				return "cannot be used: " + how + outputText(p.output()) + p.noexecHint()
			}
			return unreachable(p.from) + ": " + how + outputText(p.output()) + p.hint()
		}
	}
	return "cannot be used: the agent's output does not come from mpirun-go's daemon" + outputText(p.output()) + p.hint()
}

// progressWriter calls progress after every write.
type progressWriter struct {
	io.Writer
	progress func()
}

func (w progressWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.progress()
	return n, err
}

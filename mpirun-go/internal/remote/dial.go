package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// What is said on the standard output before frames begin, each in a line of its own. The user's shell may
// have said something before.
const (
	wantLine   = "mpigo-agent want " // and the hash: this program is to be sent
	daemonLine = "mpigo-daemon "     // and the version: frames follow
)

// HostError says that a host could not be reached, or not be used, or that it was lost.
type HostError struct {
	Host string
	Why  string
	Lost error // instead of Why
}

func (e *HostError) Error() string {
	if e.Lost != nil {
		return fmt.Sprintf("host %s was lost: %v", e.Host, e.Lost)
	}
	return fmt.Sprintf("host %s %s", e.Host, e.Why)
}

// dial starts a daemon on a host, from that with the name from ("" is the launcher's), and returns when frames can go there and come from there. Progress is called whenever something has
// come of it; the host has its timeout anew then. The error is a *HostError.
func dial(from string, agent Agent, self Program, host string, timeout time.Duration, stop <-chan struct{}, progress func()) (*agentProcess, *bufio.Reader, error) {
	p, err := startAgent(from, agent, host, self.script())
	if err != nil {
		return nil, nil, &HostError{Host: host, Why: fmt.Sprintf("%s: start the agent: %v", unreachable(from), err)}
	}
	settled := make(chan struct{})
	timedOut := make(chan bool, 1) // gets one value: whether it took too long
	var answer silenceTimer
	onProgress := func() {
		answer.heard.Store(true)
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
	return nil, nil, &HostError{Host: host, Why: why}
}

// maxPreamble bounds what the user's shell may say before.
const maxPreambleBytes = 64 << 10

// greet leads the conversation until frames begin, and calls moved as this program is sent. It returns what is wrong.
func handshake(p *agentProcess, self Program, out *bufio.Reader, in io.Writer, progress func()) string {
	for taken := 0; taken < maxPreambleBytes; {
		raw, err := out.ReadSlice('\n')
		taken += len(raw)
		line := strings.TrimRight(string(raw), "\r\n")
		theirs, isDaemon := strings.CutPrefix(line, daemonLine)
		switch {
		case isDaemon && err == nil:
			if theirs != fmt.Sprint(version) {
				return fmt.Sprintf("has a daemon of version %.20s of the launcher's protocol, and this mpirun-go speaks version %d: install the same on both", printable([]byte(theirs)), version)
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
			how := p.exitText() // by then all that it said has come
			if p.reachedHost() {
				return "cannot be used: " + how + outputText(p.output()) + p.noexecHint()
			}
			return unreachable(p.from) + ": " + how + outputText(p.output()) + p.hint()
		}
	}
	return "cannot be used: what its agent says is not mpirun-go's daemon" + outputText(p.output()) + p.hint()
}

// movingWriter tells whenever something was written.
type progressWriter struct {
	io.Writer
	progress func()
}

func (w progressWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.progress()
	return n, err
}

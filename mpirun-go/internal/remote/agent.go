package remote

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Form is the way in which an agent takes the host and the command to run there.
type Form string

const (
	FormShell Form = "shell" // HOST and a line for the user's shell on that host, like ssh
	FormSlurm Form = "slurm" // -w HOST and the words of a command, like srun
	FormLocal Form = "local" // the words of a command; every host is this machine
)

// Agent is a command that runs a command on another host, and connects its own standard input,
// output and error to it.
type Agent struct {
	Words []string
	Form  Form
}

// command returns the command that runs a sh script on a host.
func (a Agent) command(host, script string) []string {
	words := append([]string{}, a.Words...)
	switch a.Form {
	case FormSlurm:
		return append(words, "-w", host, "/bin/sh", "-c", script)
	case FormLocal:
		return append(words, "/bin/sh", "-c", script)
	}
	// The user's shell may not be compatible with sh. The script contains no single quotes.
	return append(words, host, "exec /bin/sh -c '"+script+"'")
}

// agentProcess is a running agent.
type agentProcess struct {
	from   string // the host whose daemon has started it; "": the launcher's host
	agent  Agent
	host   string
	cmd    *exec.Cmd
	in     *os.File      // writing end of its standard input
	out    *os.File      // reading end of its standard output
	exited chan struct{} // closed when it has exited
	status error         // its exit status; written before exited is closed

	mu          sync.Mutex   // guards all below
	stderrLines []string     // lines of its standard error that notify has not got
	stdoutLines []string     // first lines of its standard output before the channel begins
	notify      func(string) // gets its standard error; nil before the channel begins
}

// Bounds on the output of an agent that is kept until the channel begins.
const (
	maxStderrLines = 20  // the last ones: the reason of a failure comes last
	maxStdoutLines = 3   // the first ones
	maxLineBytes   = 400 // of one line, and of all lines in an error message
)

// startAgent starts an agent in a session of its own. So signals of the launcher's terminal do not
// reach the agent, and the agent cannot ask the user for a password. The kernel kills the agent
// when this process dies.
func startAgent(from string, agent Agent, host, script string) (*agentProcess, error) {
	words := agent.command(host, script)
	p := &agentProcess{from: from, agent: agent, host: host, exited: make(chan struct{})}
	p.cmd = exec.Command(words[0], words[1:]...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = agentExitGrace
	if agent.Form == FormSlurm {
		// This means --overlap, a flag that older versions of srun reject.
		p.cmd.Env = append(os.Environ(), "SLURM_OVERLAP=1")
	}
	// cmd.StdoutPipe would be unsuitable: Wait closes it while it may still be read.
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		_, _ = in.Close(), childIn.Close()
		return nil, err
	}
	p.in, p.out = in, out
	stderr := &lineWriter{line: p.addStderrLine, drop: p.isEchoedScript}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = childIn, childOut, stderr
	started := make(chan error)
	go func() {
		// The kernel sends Pdeathsig when the thread that forked dies, so keep this thread until
		// the agent has exited.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.status = p.cmd.Wait()
		_, _ = stderr.Write([]byte("\n")) // ends an unfinished last line
		// Processes that the agent has started may hold the pipes open. The channel ends with the
		// agent anyway.
		p.setDeadline(time.Now().Add(agentExitGrace))
		close(p.exited)
	}()
	err = <-started
	_, _ = childIn.Close(), childOut.Close()
	if err != nil {
		_, _ = in.Close(), out.Close()
		return nil, err
	}
	return p, nil
}

// setDeadline sets a deadline for reads from the agent and writes to it.
func (p *agentProcess) setDeadline(t time.Time) {
	_, _ = p.in.SetWriteDeadline(t), p.out.SetReadDeadline(t)
}

// noBinding is srun's message about --cpu-bind=none on a cluster without CPU binding.
const noBinding = "srun: cluster configuration lacks support for cpu binding"

// addStderrLine handles one line of the agent's standard error.
func (p *agentProcess) addStderrLine(line string) {
	if p.agent.Form == FormSlurm && line == noBinding {
		return
	}
	p.mu.Lock()
	notice := p.notify
	if notice == nil {
		if p.stderrLines = append(p.stderrLines, line); len(p.stderrLines) > maxStderrLines {
			p.stderrLines = p.stderrLines[1:]
		}
	}
	p.mu.Unlock()
	if notice != nil {
		notice(line)
	}
}

// forwardStderr passes the agent's standard error to notify, beginning with the lines that are
// kept. notify must not block.
func (p *agentProcess) forwardStderr(notice func(string)) {
	p.mu.Lock()
	kept := p.stderrLines
	p.stderrLines, p.notify = nil, notice
	p.mu.Unlock()
	for _, line := range kept {
		notice(line)
	}
}

// kill kills the agent and its process group, and ends reads from it and writes to it.
func (p *agentProcess) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.setDeadline(time.Unix(1, 0))
}

// discard kills an agent whose channel has ended, and waits for its exit.
func (p *agentProcess) discard() {
	p.kill()
	_ = p.out.Close()
	select {
	case <-p.exited:
	case <-time.After(2 * agentExitGrace):
		// The agent runs as another user, or is stuck in the kernel.
	}
}

// agentExitGrace is the time that an agent has to exit after the end of its channel.
const agentExitGrace = time.Second

// exitText says how the agent exited. If it has not, exitText waits for at most agentExitGrace.
func (p *agentProcess) exitText() string {
	select {
	case <-p.exited:
	case <-time.After(agentExitGrace):
		return "the agent closed the connection"
	}
	exit := (*exec.ExitError)(nil)
	switch {
	case p.status == nil, errors.Is(p.status, exec.ErrWaitDelay):
		// ErrWaitDelay means that a child of the agent holds its standard error open.
		return "the agent ended"
	case errors.As(p.status, &exit) && exit.ExitCode() >= 0:
		return fmt.Sprintf("the agent ended with status %d", exit.ExitCode())
	}
	return fmt.Sprintf("the agent ended: %v", p.status)
}

// reachedHost reports whether the agent's exit status shows that it ran the script on the host.
func (p *agentProcess) reachedHost() bool {
	return p.exitedWith(statusNoCache, statusNoCopy, statusNotExecutable)
}

func (p *agentProcess) exitedWith(statuses ...int) bool {
	select {
	case <-p.exited:
	default:
		return false
	}
	exit := (*exec.ExitError)(nil)
	return errors.As(p.status, &exit) && slices.Contains(statuses, exit.ExitCode())
}

// lineWriter splits written data into lines, and passes each line that is not empty to line. It
// passes a long line in pieces of maxLineBytes.
type lineWriter struct {
	line func(string)
	// drop, if not nil, reports whether a piece is dropped, with the rest of its line.
	drop     func(string) bool
	dropping bool
	rest     []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		end := bytes.IndexByte(w.rest, '\n')
		if end < 0 && len(w.rest) < maxLineBytes {
			return len(p), nil
		}
		next := end + 1
		isWhole := end >= 0 && end <= maxLineBytes
		if !isWhole {
			end, next = maxLineBytes, maxLineBytes
		}
		line := printable(w.rest[:end])
		w.dropping = w.dropping || w.drop != nil && w.drop(line)
		if line != "" && !w.dropping {
			w.line(line)
		}
		w.dropping = w.dropping && !isWhole
		w.rest = append(w.rest[:0], w.rest[next:]...)
	}
}

// printable converts data from outside into one line of printable text.
func printable(p []byte) string {
	line := strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == '\ufffd' {
			return ' '
		}
		return c
	}, string(p[:min(len(p), maxLineBytes)]))
	return strings.TrimSpace(line)
}

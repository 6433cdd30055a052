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

// Form is how an agent is told the host and what to run there.
type Form string

// The forms of agents.
const (
	FormShell Form = "shell" // HOST and one argument, a line for the user's shell there: as ssh takes them
	FormSlurm Form = "slurm" // -w HOST and the words of a command: as srun takes them
	FormLocal Form = "local" // the words of a command: every host is this machine
)

// Agent is the command by which something is run on another host, with this process's standard input,
// output and error.
type Agent struct {
	Words []string
	Form  Form
}

// command is what is executed to run a script of sh on a host.
func (a Agent) command(host, script string) []string {
	words := append([]string{}, a.Words...)
	switch a.Form {
	case FormSlurm:
		return append(words, "-w", host, "/bin/sh", "-c", script)
	case FormLocal:
		return append(words, "/bin/sh", "-c", script)
	}
	// The user's shell there need not be one of Bourne's. The script has no single quotes.
	return append(words, host, "exec /bin/sh -c '"+script+"'")
}

// process is an agent that runs.
type agentProcess struct {
	from   string // the host whose daemon has started it; "": this is the launcher
	agent  Agent
	host   string
	cmd    *exec.Cmd
	in     *os.File      // our end of its standard input
	out    *os.File      // and of its standard output
	exited chan struct{} // closed when it has ended
	status error         // written before

	mu          sync.Mutex   // guards all below
	stderrLines []string     // lines of its standard error that were not passed on
	stdoutLines []string     // the first ones of its standard output, before there is a channel
	notify      func(string) // passes on what it says; nil: not yet
}

// maxSaid bounds what is kept of what an agent says before there is a channel.
const (
	maxStderrLines = 20
	maxStdoutLines = 3
	maxLineBytes   = 400
)

// startAgent starts an agent. It is in a session of its own: what the terminal does to the launcher is
// not for it to know, and it asks nothing of the user. The kernel ends it when this process is killed.
func startAgent(from string, agent Agent, host, script string) (*agentProcess, error) {
	words := agent.command(host, script)
	p := &agentProcess{from: from, agent: agent, host: host, exited: make(chan struct{})}
	p.cmd = exec.Command(words[0], words[1:]...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	p.cmd.WaitDelay = agentExitGrace
	if agent.Form == FormSlurm {
		p.cmd.Env = append(os.Environ(), "SLURM_OVERLAP=1") // as --overlap, which older ones do not know
	}
	// Pipes of our own: Wait is not to close them while they are read.
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
	stderr := &lineWriter{line: p.addStderrLine}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = childIn, childOut, stderr
	started := make(chan error)
	go func() {
		// The signal at our death is one at the death of the thread that forks: this one is kept until the agent has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		p.status = p.cmd.Wait()
		_, _ = stderr.Write([]byte("\n")) // ends what was not ended
		// What the agent has left may hold the pipes open. The end of the agent is that of the channel all the same.
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

// limit is when reading from the agent and writing to it end.
func (p *agentProcess) setDeadline(t time.Time) {
	_, _ = p.in.SetWriteDeadline(t), p.out.SetReadDeadline(t)
}

// noBinding is what srun says of --cpu-bind=none where it could not bind anyway.
const noBinding = "srun: cluster configuration lacks support for cpu binding"

// say deals with one line of the agent's standard error.
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

// passOn gives to notice what the agent has said, and will say. Notice does not wait.
func (p *agentProcess) forwardStderr(notice func(string)) {
	p.mu.Lock()
	said := p.stderrLines
	p.stderrLines, p.notify = nil, notice
	p.mu.Unlock()
	for _, line := range said {
		notice(line)
	}
}

// kill ends the agent, and what waits for it.
func (p *agentProcess) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	p.setDeadline(time.Unix(1, 0))
}

// discard ends what is left of an agent whose channel is over, and waits for its end.
func (p *agentProcess) discard() {
	p.kill()
	_ = p.out.Close()
	select {
	case <-p.exited:
	case <-time.After(2 * agentExitGrace): // it is another user's, or the kernel holds it
	}
}

// endGrace is how long an agent may take to end when its channel has.
const agentExitGrace = time.Second

// how tells how the agent ended, or that it has not.
func (p *agentProcess) exitText() string {
	select {
	case <-p.exited:
	case <-time.After(agentExitGrace):
		return "the agent closed the connection"
	}
	exit := (*exec.ExitError)(nil)
	switch {
	case p.status == nil, errors.Is(p.status, exec.ErrWaitDelay): // the latter if something that it has left holds its standard error
		return "the agent ended"
	case errors.As(p.status, &exit) && exit.ExitCode() >= 0:
		return fmt.Sprintf("the agent ended with status %d", exit.ExitCode())
	}
	return fmt.Sprintf("the agent ended: %v", p.status)
}

// reached is whether the agent has ended with one of these: it has come as far as the host.
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

// lineWriter cuts what is written into lines.
type lineWriter struct {
	line func(string)
	rest []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		end := bytes.IndexByte(w.rest, '\n')
		if end < 0 && len(w.rest) < maxLineBytes {
			return len(p), nil
		}
		next := end + 1
		if end < 0 || end > maxLineBytes {
			end = maxLineBytes
			next = max(next, end)
		}
		if line := printable(w.rest[:end]); line != "" {
			w.line(line)
		}
		w.rest = append(w.rest[:0], w.rest[next:]...)
	}
}

// printable makes of what came from elsewhere a line of text.
func printable(p []byte) string {
	line := strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 || c == '\ufffd' {
			return ' '
		}
		return c
	}, string(p[:min(len(p), maxLineBytes)]))
	return strings.TrimSpace(line)
}

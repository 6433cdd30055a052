package remote

import (
	"fmt"
	"slices"
	"strings"
)

// addStdoutLine keeps a line of the agent's standard output from before the channel begins. A host
// that refuses the login may print the reason there.
func (p *agentProcess) addStdoutLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line != "" && !isScriptText(line) && len(p.stdoutLines) < maxStdoutLines {
		p.stdoutLines = append(p.stdoutLines, line)
	}
}

// output returns the kept lines of the agent's output.
func (p *agentProcess) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(slices.Concat(p.stderrLines, p.stdoutLines), "; ")
}

// isEchoedScript reports whether a line of the agent's standard error is a part of the script,
// which the agent has not run.
func (p *agentProcess) isEchoedScript(line string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.notify == nil && isScriptText(line)
}

// isScriptText reports whether a line is a part of the script, printed by a command that is not an
// agent, such as echo. Such a line would not help the user.
func isScriptText(line string) bool {
	return slices.ContainsFunc([]string{`"$d`, `"$f`, `"$t`, `"$p`, `$(umask)`, `"$u"`, DaemonArg, InstallArg}, func(mark string) bool { return strings.Contains(line, mark) })
}

// testCommand returns a command line with which the user can test the agent.
func (a Agent) testCommand(host string) string {
	words := append([]string{}, a.Words...)
	switch a.Form {
	case FormSlurm:
		words = append(words, "-w", host)
	case FormShell:
		words = append(words, host)
	}
	typed := ""
	for _, word := range words {
		typed += shellWord(word) + " "
	}
	return typed + "true"
}

// shellWord quotes a word for a shell, if necessary.
func shellWord(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./=:@%+,", c) || c >= 0x80
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// outputText returns the part of a message that quotes an agent's output.
func outputText(text string) string {
	if text == "" {
		return ""
	}
	if len(text) > maxLineBytes {
		text = text[:maxLineBytes] + "…"
	}
	return "; its output: " + text
}

// unreachable says that a host cannot be reached from the host with the given name ("": the
// launcher's).
func unreachable(from string) string {
	if from == "" {
		return "cannot be reached"
	}
	return "cannot be reached from " + from
}

// hint suggests a command to the user, and the host to run it on.
func (p *agentProcess) hint() string {
	where := ""
	if p.from != "" {
		where = " on " + p.from
	}
	return fmt.Sprintf("; try%s: %s", where, p.agent.testCommand(p.host))
}

// noexecHint suggests another cache directory if the shell cannot execute the copy of mpirun-go,
// for example on a file system mounted noexec.
func (p *agentProcess) noexecHint() string {
	if !p.exitedWith(statusNotExecutable) || !strings.Contains(p.output(), "ermission denied") {
		return ""
	}
	return "; if its file system is mounted noexec, set XDG_CACHE_HOME on that host to another directory"
}

package remote

import (
	"fmt"
	"slices"
	"strings"
)

// print keeps one line of the agent's standard output that is no frame: what refuses a login may say so there.
func (p *agentProcess) addStdoutLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if line != "" && !isScriptText(line) && len(p.stdoutLines) < maxStdoutLines {
		p.stdoutLines = append(p.stdoutLines, line)
	}
}

// lastWords are what the agent said that was not passed on.
func (p *agentProcess) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(append(slices.DeleteFunc(slices.Clone(p.stderrLines), isScriptText), p.stdoutLines...), "; ")
}

// isScript is whether a line is a part of the script, said again by something that is no agent, echo for example. It would tell the user nothing.
func isScriptText(line string) bool {
	return slices.ContainsFunc([]string{`"$d`, `"$f`, `"$t`, `"$p`, `$(umask)`, `"$u"`, DaemonArg, InstallArg}, func(mark string) bool { return strings.Contains(line, mark) })
}

// describe is the command as a user would type it to try it, quotes included.
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

// shellWord is a word as a shell takes it.
func shellWord(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./=:@%+,", c) || c >= 0x80
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func outputText(said string) string {
	if said == "" {
		return ""
	}
	if len(said) > maxLineBytes {
		said = said[:maxLineBytes] + "…"
	}
	return ", having said: " + said
}

// unreachable says that a host cannot be reached, and from which one, if that is not the launcher's.
func unreachable(from string) string {
	if from == "" {
		return "cannot be reached"
	}
	return "cannot be reached from " + from
}

// hint says what the user can try, and where.
func (p *agentProcess) hint() string {
	where := ""
	if p.from != "" {
		where = " on " + p.from
	}
	return fmt.Sprintf("; does this work%s: %s", where, p.agent.testCommand(p.host))
}

// noexec says what helps if the shell there may not execute the copy of mpirun-go, on a file system that is mounted noexec for example.
func (p *agentProcess) noexecHint() string {
	if !p.exitedWith(statusNotExecutable) || !strings.Contains(p.output(), "ermission denied") {
		return ""
	}
	return "; is its file system mounted noexec? XDG_CACHE_HOME on that host chooses another place"
}

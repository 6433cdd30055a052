package procs

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// State is the state of a process: the letter of /proc/PID/stat (proc_pid_stat(5)).
type State byte

// Some states.
const (
	StateUnknown State = 0
	StateStopped State = 'T' // by a signal such as SIGSTOP
	StateTraced  State = 't' // by a debugger
	StateDisk    State = 'D' // in a wait that no signal interrupts
	StateZombie  State = 'Z' // has exited
)

// String describes the state in a few words, "" if it is unknown.
func (s State) String() string {
	switch s {
	case StateUnknown:
		return ""
	case StateStopped:
		return "stopped by a signal"
	case StateTraced:
		return "stopped by a debugger"
	case StateDisk:
		return "in an uninterruptible wait of the kernel"
	case StateZombie, 'X':
		return "exited"
	case 'R':
		return "running"
	}
	return "sleeping"
}

// State returns the state of the process now. For a process on another host it waits for the host's
// answer until ctx ends.
func (p *Proc) State(ctx context.Context) State {
	if p.Remote != nil {
		return p.Remote.State(ctx)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		return StateUnknown
	}
	return parseState(string(stat))
}

// statFields returns the fields of /proc/PID/stat after the name, which may contain spaces and
// parentheses.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

func parseState(stat string) State {
	if fields := statFields(stat); len(fields) > 0 && len(fields[0]) == 1 && fields[0] >= "A" {
		return State(fields[0][0])
	}
	return StateUnknown
}

// The position of the flags among the fields after the name, and the flag PF_EXITING of
// include/linux/sched.h.
const (
	statFlags   = 6 // field 9 of all
	flagExiting = 0x4
)

func isExiting(stat string) bool {
	fields := statFields(stat)
	if len(fields) <= statFlags {
		return false
	}
	flags, err := strconv.ParseUint(fields[statFlags], 10, 64)
	return err == nil && flags&flagExiting != 0
}

package procs

import (
	"context"
	"strconv"

	"github.com/mpigo/mpigo/internal/procstate"
)

// State returns the current state of the process. For a process on another host it waits for the
// host's answer until ctx ends.
func (p *Proc) State(ctx context.Context) procstate.State {
	if p.Remote != nil {
		return p.Remote.State(ctx)
	}
	return procstate.Of(p.PID)
}

// The position of the flags among the fields after the name, and the flag PF_EXITING of
// include/linux/sched.h.
const (
	statFlags   = 6 // field 9 of the line
	flagExiting = 0x4
)

func isExiting(stat string) bool {
	fields := procstate.Fields(stat)
	if len(fields) <= statFlags {
		return false
	}
	flags, err := strconv.ParseUint(fields[statFlags], 10, 64)
	return err == nil && flags&flagExiting != 0
}

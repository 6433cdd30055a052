package verbs

import (
	"errors"
	"syscall"
)

var (
	// ErrNoDevice: no device of that name.
	ErrNoDevice = errors.New("no such RDMA device")
	// ErrInvalid: an argument, attribute or state that the call does not permit.
	ErrInvalid = errors.New("invalid argument")
	// ErrQueueFull: the work queue holds all that it can.
	ErrQueueFull = errors.New("work queue full")
	// ErrBusy: the object is in use.
	ErrBusy = errors.New("object is in use")
	// ErrNoMemory: no memory, or over the limit of locked memory.
	ErrNoMemory = errors.New("out of memory or over the limit of locked memory")
	// ErrGone: the object was destroyed, or its device broke.
	ErrGone = errors.New("object is gone")
)

// CallError is a verbs call that failed.
type CallError struct {
	Call  string // "ibv_reg_mr"
	Errno syscall.Errno
	Note  string // what is known beyond the number, or ""
	Err   error  // a sentinel of this package, or nil
}

func (e *CallError) Error() string {
	s := e.Call + ": "
	switch {
	case e.Note != "" && e.Errno != 0:
		s += e.Errno.Error() + ": " + e.Note
	case e.Note != "":
		s += e.Note
	case e.Err != nil:
		s += e.Err.Error()
	default:
		s += e.Errno.Error()
	}
	return s
}

// Unwrap gives the sentinel and the number to errors.Is.
func (e *CallError) Unwrap() []error {
	var errs []error
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	if e.Errno != 0 {
		errs = append(errs, e.Errno)
	}
	return errs
}

// Fail makes the CallError of an error number, with the sentinel that belongs to it.
func Fail(call string, errno syscall.Errno, note string) *CallError {
	e := &CallError{Call: call, Errno: errno, Note: note}
	switch errno {
	case syscall.EINVAL, syscall.EOPNOTSUPP, syscall.ENOSYS:
		e.Err = ErrInvalid
	case syscall.ENOMEM:
		e.Err = ErrNoMemory
	case syscall.EBUSY:
		e.Err = ErrBusy
	case syscall.ENODEV, syscall.ENXIO:
		e.Err = ErrNoDevice
	case syscall.EIO:
		e.Err = ErrGone
	}
	if errno == syscall.ENOMEM && (call == "ibv_post_send" || call == "ibv_post_recv" || call == "ibv_post_srq_recv") {
		e.Err = ErrQueueFull
	}
	return e
}

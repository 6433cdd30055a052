package verbs

import (
	"errors"
	"syscall"
)

var (
	// ErrNoDevice: no device has that name.
	ErrNoDevice = errors.New("no such RDMA device")
	// ErrInvalid: the call does not permit an argument, an attribute or the object's state.
	ErrInvalid = errors.New("invalid argument")
	// ErrQueueFull: the work queue has no free entry.
	ErrQueueFull = errors.New("work queue full")
	// ErrBusy: other objects use the object.
	ErrBusy = errors.New("object is in use")
	// ErrNoMemory: memory is exhausted, or the limit of locked memory is reached.
	ErrNoMemory = errors.New("out of memory or over the limit of locked memory")
	// ErrGone: the object was destroyed, or its device failed.
	ErrGone = errors.New("object is gone")
)

// CallError is the error of a failed verbs call.
type CallError struct {
	Call  string // the function, for example "ibv_reg_mr"
	Errno syscall.Errno
	Note  string // details beyond Errno, or ""
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

// Unwrap returns the sentinel and the error number, for errors.Is.
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

// NewCallError returns the CallError of an error number. Err is the sentinel that the number
// stands for, or nil.
func NewCallError(call string, errno syscall.Errno, note string) *CallError {
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

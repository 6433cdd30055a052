// Package libibverbs is the real provider of [verbs.Device]: rdma-core's libibverbs, called through cgo.
//
// It is built in by the tag ibverbs, which needs cgo and rdma-core's headers (Debian: libibverbs-dev). The library
// itself is opened by [New] while the program runs, so that one binary starts on machines with and without it. Built without
// the tag, New gives [ErrNotBuilt].
//
// # Hot calls
//
// Poll, PostSend, PostRecv and ReqNotify cross into C once for the whole batch and allocate nothing. Completions are written
// into the caller's slice.
//
// # Handles
//
// C holds no pointer of Go. What C code gives back, in events, is a slot and a generation in a table of the
// device. [verbs.AH].Handle is the like, in a table that C looks into at each post: a handle that is wrong, stale or of
// another protection domain makes the request malformed.
//
// # Life
//
// After Destroy, Dealloc, Dereg or Close every method gives verbs.ErrGone, the second Destroy too. An object with users, or
// with events that were not acknowledged, gives verbs.ErrBusy and stays as it was: the library itself would wait there, for
// ever. Acknowledging more than was taken has no effect.
//
// # Memory and fork
//
// RegMR takes the memory where it is: it must be of the Go heap, where nothing moves, or of mmap, and never of a goroutine's
// stack. The region keeps a reference to it until Dereg, so that the collector does not take it.
//
// ibv_fork_init is not called. It would keep registered pages from children of fork, at the price of a system call for
// every registration. Programs started by os/exec share the memory of their parent until they execute, and copy nothing; from
// Linux 5.12 on the kernel copies pinned pages at a fork, so that C code that forks is safe too. On an older kernel such
// code needs RDMAV_FORK_SAFE=1 in the environment, which the library heeds.
package libibverbs

import "errors"

var (
	// ErrNotBuilt: the program was built without this provider.
	ErrNotBuilt = errors.New("built without InfiniBand verbs")
	// ErrNoLibrary: there is no libibverbs that could be opened.
	ErrNoLibrary = errors.New("no usable libibverbs")
)

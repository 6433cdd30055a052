// Package libibverbs provides the real devices of [verbs.Device]: it calls rdma-core's libibverbs
// through cgo.
//
// It needs cgo and 64-bit Linux, but neither the library nor its headers at build time: rdmacore.h
// has the declarations. [New] opens the library at run time, so the same binary starts on machines
// with and without it. In programs built without cgo, New returns [ErrNotBuilt].
//
// # Hot calls
//
// Poll, PostSend, PostRecv and ReqNotify cross into C once per batch and allocate nothing. Poll
// writes the completions into the caller's slice.
//
// # Handles
//
// C code holds no Go pointers. An event from C names an object by slot and generation in a table of
// the device. [verbs.AH].Handle works the same way, with a table that C reads at each post. A
// request with an invalid or stale handle, or a handle of another protection domain, is malformed.
//
// # Object lifetime
//
// After Destroy, Dealloc, Dereg or Close, every method returns verbs.ErrGone, including a second
// Destroy. Destroying an object with users or with unacknowledged events returns verbs.ErrBusy and
// changes nothing: the library itself would wait forever for the acknowledgments. Acknowledging
// more events than were taken has no effect.
//
// # Memory and fork
//
// RegMR does not copy the memory. The memory must be on the Go heap, where objects do not move, or
// come from mmap; it must not be on a goroutine's stack. The region keeps a reference to the memory
// until Dereg.
//
// The package does not call ibv_fork_init. That function hides registered pages from children of
// fork and costs a system call per registration. Programs started by os/exec share the memory of
// their parent until they call exec, and copy nothing. Since Linux 5.12, the kernel copies pinned
// pages at fork, so C code that forks is safe, too. On older kernels, such code needs
// RDMAV_FORK_SAFE=1 in the environment, which the library respects.
package libibverbs

import "errors"

var (
	// ErrNotBuilt: the program was built without cgo, or not for 64-bit Linux.
	ErrNotBuilt = errors.New("built without cgo")
	// ErrNoLibrary: libibverbs cannot be opened.
	ErrNoLibrary = errors.New("no usable libibverbs")
)

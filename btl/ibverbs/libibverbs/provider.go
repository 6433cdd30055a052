//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// libraryName is the soname of the interface in the header. All releases since 2006 have it.
const libraryName = "libibverbs.so.1"

// library holds the functions of the opened library.
type library = C.struct_mpigo_lib

// Provider opens devices of libibverbs.
type Provider struct {
	lib *library
}

var (
	_ verbs.Provider    = (*Provider)(nil)
	_ verbs.Device      = (*device)(nil)
	_ verbs.PD          = (*pd)(nil)
	_ verbs.MR          = (*mr)(nil)
	_ verbs.AH          = (*ah)(nil)
	_ verbs.CQ          = (*cq)(nil)
	_ verbs.CompChannel = (*channel)(nil)
	_ verbs.QP          = (*qp)(nil)
	_ verbs.SRQ         = (*srq)(nil)
)

// New opens the library. The error wraps ErrNoLibrary.
func New() (*Provider, error) { return load(libraryName) }

func load(file string) (*Provider, error) {
	name := C.CString(file)
	defer C.free(unsafe.Pointer(name))
	lib := new(library)
	var text [512]C.char
	if C.mpigo_load(lib, name, &text[0], C.size_t(len(text))) != 0 {
		return nil, fmt.Errorf("%w: %s: install rdma-core's library (Debian: libibverbs1 ibverbs-providers, Red Hat: libibverbs)",
			ErrNoLibrary, C.GoString(&text[0]))
	}
	return &Provider{lib: lib}, nil
}

// deviceList calls f with the names of the devices and the library's device list. The list is valid
// until f returns.
func (p *Provider) deviceList(f func(names []string, list C.uint64_t) error) error {
	var list, count C.uint64_t
	switch errno := syscall.Errno(C.mpigo_device_list(p.lib, &list, &count)); errno {
	case 0:
	case syscall.ENOSYS, syscall.ENOENT: // the kernel modules are not loaded
		return f(nil, 0)
	default:
		return verbs.NewCallError("ibv_get_device_list", errno, "")
	}
	defer C.mpigo_free_device_list(p.lib, list)
	names := make([]string, count)
	for i := range names {
		names[i] = C.GoString(C.mpigo_device_name(p.lib, list, C.uint64_t(i)))
	}
	return f(names, list)
}

// Devices returns the names of the RDMA devices of this machine.
func (p *Provider) Devices() (names []string, err error) {
	err = p.deviceList(func(found []string, _ C.uint64_t) error {
		names = found
		return nil
	})
	return names, err
}

// Open opens a device by name.
func (p *Provider) Open(name string) (verbs.Device, error) {
	d := &device{name: name, lib: p.lib, resolvers: make(chan struct{}, maxResolvers)}
	err := p.deviceList(func(names []string, list C.uint64_t) error {
		i := slices.Index(names, name)
		if i < 0 {
			have := "none"
			if len(names) > 0 {
				have = strings.Join(names, ", ")
			}
			return fmt.Errorf("%w: %s; this machine has %s", verbs.ErrNoDevice, name, have)
		}
		var fd C.int
		if errno := syscall.Errno(C.mpigo_open(p.lib, list, C.uint64_t(i), &d.ctx, &fd)); errno != 0 {
			return verbs.NewCallError("ibv_open_device", errno, openNote(name, errno))
		}
		var err error
		if d.events, err = watch(int(fd), name+" events"); err != nil {
			C.mpigo_close(p.lib, d.ctx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// openNote returns details about a device that cannot be opened. The library reports ENOENT for a
// device that the user may not open.
func openNote(name string, errno syscall.Errno) string {
	if errno == syscall.EACCES || errno == syscall.EPERM || errno == syscall.ENOENT && !mayOpen("/dev/infiniband/uverbs*") {
		return name + ": the user must be able to write to /dev/infiniband/uverbs*, also in a container (--device)"
	}
	return name
}

// mayOpen reports whether this user can write to one of the files.
func mayOpen(pattern string) bool {
	files, _ := filepath.Glob(pattern) // the pattern is valid
	return slices.ContainsFunc(files, func(f string) bool { return unix.Access(f, unix.W_OK) == nil })
}

// call returns the error of a C call with this result, or nil for 0.
func call(name string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	return verbs.NewCallError(name, syscall.Errno(errno), "")
}

// gone returns the error of a call on a destroyed object.
func gone(name string) error { return &verbs.CallError{Call: name, Err: verbs.ErrGone} }

// busy returns the error of destroying an object with n users.
func busy(name string, n int, users string) error {
	return &verbs.CallError{Call: name, Err: verbs.ErrBusy, Note: fmt.Sprintf("%d %s", n, users)}
}

// invalid returns the error of an invalid argument that is not passed to the library.
func invalid(name, format string, args ...any) error {
	return &verbs.CallError{Call: name, Err: verbs.ErrInvalid, Note: fmt.Sprintf(format, args...)}
}

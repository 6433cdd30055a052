//go:build ibverbs && cgo && linux

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

// libraryName is the name of the interface that the header describes. Every release since 2006 has had it.
const libraryName = "libibverbs.so.1"

// library is the opened library: its functions.
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

// New opens the library. The error Is ErrNotBuilt or ErrNoLibrary.
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

// deviceList calls f with the names of the devices and the library's list of them, which ends with f.
func (p *Provider) deviceList(f func(names []string, list C.uint64_t) error) error {
	var list, count C.uint64_t
	switch errno := syscall.Errno(C.mpigo_device_list(p.lib, &list, &count)); errno {
	case 0:
	case syscall.ENOSYS, syscall.ENOENT: // the kernel's part is not loaded
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

// Devices are the names of the RDMA devices of this machine.
func (p *Provider) Devices() (names []string, err error) {
	err = p.deviceList(func(found []string, _ C.uint64_t) error {
		names = found
		return nil
	})
	return names, err
}

// Open opens a device by name.
func (p *Provider) Open(name string) (verbs.Device, error) {
	d := &device{name: name, lib: p.lib}
	err := p.deviceList(func(names []string, list C.uint64_t) error {
		i := slices.Index(names, name)
		if i < 0 {
			there := "there are none"
			if len(names) > 0 {
				there = "there are " + strings.Join(names, ", ")
			}
			return fmt.Errorf("%w: %s; %s", verbs.ErrNoDevice, name, there)
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

// openNote says more about a device that cannot be opened. The library says of one which this user may not open that it is not there.
func openNote(name string, errno syscall.Errno) string {
	if errno == syscall.EACCES || errno == syscall.EPERM || errno == syscall.ENOENT && !mayOpen("/dev/infiniband/uverbs*") {
		return name + ": the user must be able to write to /dev/infiniband/uverbs*, also in a container (--device)"
	}
	return name
}

// mayOpen reports whether this user can write to one of the files.
func mayOpen(pattern string) bool {
	files, _ := filepath.Glob(pattern) // the pattern is right
	return slices.ContainsFunc(files, func(f string) bool { return unix.Access(f, unix.W_OK) == nil })
}

// call makes the error of a call that returned an error number, or nil.
func call(name string, errno C.int) error {
	if errno == 0 {
		return nil
	}
	return verbs.NewCallError(name, syscall.Errno(errno), "")
}

// gone is the error of a call for an object that was destroyed.
func gone(name string) error { return &verbs.CallError{Call: name, Err: verbs.ErrGone} }

// busy is the error of destroying what n others use.
func busy(name string, n int, users string) error {
	return &verbs.CallError{Call: name, Err: verbs.ErrBusy, Note: fmt.Sprintf("%d %s", n, users)}
}

// invalid is the error of an argument that does not get as far as the library.
func invalid(name, format string, args ...any) error {
	return &verbs.CallError{Call: name, Err: verbs.ErrInvalid, Note: fmt.Sprintf(format, args...)}
}

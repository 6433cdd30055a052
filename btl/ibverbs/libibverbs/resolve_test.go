//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// TestResolveDoesNotBlock: Resolve returns while the kernel waits for an address. It has a result
// before the kernel does, because the kernel may miss the answer. Dealloc waits for the kernel.
func TestResolveDoesNotBlock(t *testing.T) {
	d := fakeDevice(t)
	p, err := d.AllocPD()
	require.NoError(t, err)
	results := make(chan error, 1)
	command(t, d, fakeHold+1)
	p.Resolve(verbs.AHAttr{Port: 1, IsGlobal: true}, func(err error) { results <- err })
	require.NoError(t, <-results)
	released := make(chan struct{})
	go func() {
		command(t, d, fakeHold)
		close(released)
	}()
	require.NoError(t, p.Dealloc())
	<-released
}

// TestResolveReportsErrors: if a path cannot be resolved, the error is that of ibv_create_ah.
func TestResolveReportsErrors(t *testing.T) {
	d := fakeDevice(t)
	p, err := d.AllocPD()
	require.NoError(t, err)
	resolve := func(attr verbs.AHAttr) error {
		results := make(chan error, 1)
		p.Resolve(attr, func(err error) { results <- err })
		return <-results
	}
	require.ErrorIs(t, resolve(verbs.AHAttr{Port: 2, IsGlobal: true}), syscall.ENETUNREACH)
	require.ErrorIs(t, resolve(verbs.AHAttr{Port: 0, IsGlobal: true}), verbs.ErrInvalid)
	require.NoError(t, resolve(verbs.AHAttr{Port: 2}), "a LID needs no address")
	require.NoError(t, p.Dealloc())
	require.ErrorIs(t, resolve(verbs.AHAttr{Port: 1, IsGlobal: true}), verbs.ErrGone)
}

//go:build !cgo || !linux || 386 || arm || mips || mipsle

package libibverbs

import (
	"fmt"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Provider opens devices of libibverbs.
type Provider struct{}

// New returns an error that wraps ErrNotBuilt.
func New() (*Provider, error) { return nil, notBuilt() }

// Devices returns the names of the RDMA devices of this machine.
func (*Provider) Devices() ([]string, error) { return nil, notBuilt() }

// Open opens a device by name.
func (*Provider) Open(string) (verbs.Device, error) { return nil, notBuilt() }

func notBuilt() error {
	return fmt.Errorf("%w: build the program for 64-bit Linux with cgo (CGO_ENABLED=1 and a C compiler)", ErrNotBuilt)
}

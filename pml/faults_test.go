package pml

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/faults"
	"github.com/mpigo/mpigo/btl/loop"
)

// faultyModule makes a module of a fabric whose operations fail on request (btl.Injector).
func faultyModule(f *loop.Fabric, rank, rail int, ev btl.Events) (btl.Module, error) {
	return faults.Wrap(faults.Config{Events: ev}, func(ev btl.Events) (btl.Module, error) { return f.Module(rank, rail, ev, nil) })
}

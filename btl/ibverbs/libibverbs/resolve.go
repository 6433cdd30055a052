//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

/*
#include "shim.h"
*/
import "C"

import (
	"time"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

const (
	// The kernel waits a second for the answer to its request for a link-layer address. It misses
	// an answer that comes before it waits, as over veth, but the next call finds the address at
	// once. Therefore Resolve tries again after resolveAgain, up to resolveTries times in total.
	resolveAgain = 10 * time.Millisecond
	resolveTries = 2
	// maxResolvers bounds the threads of a device that the kernel blocks.
	maxResolvers = 64
)

// Resolve makes an address handle in another goroutine, and destroys it. The kernel keeps the
// link-layer address.
func (p *pd) Resolve(attr verbs.AHAttr, done func(err error)) {
	const name = "ibv_create_ah"
	native, err := ahAttr(name, &attr)
	if p.pd == 0 {
		err = gone(name)
	}
	if err != nil || !attr.IsGlobal { // a LID is a link-layer address
		done(err)
		return
	}
	dev, domain := p.dev, p.pd
	try := func() error {
		dev.resolvers <- struct{}{}
		defer func() { <-dev.resolvers }()
		var ah C.uint64_t
		if err := call(name, C.mpigo_create_ah(dev.lib, domain, &native, &ah)); err != nil {
			return err
		}
		return call("ibv_destroy_ah", C.mpigo_destroy_ah(dev.lib, ah))
	}
	p.resolving.Go(func() { done(p.resolve(try)) })
}

// resolve calls try until it succeeds.
func (p *pd) resolve(try func() error) (err error) {
	results := make(chan error, resolveTries)
	for begun, ended := 0, 0; ; {
		var again <-chan time.Time
		if begun < resolveTries {
			begun++
			p.resolving.Go(func() { results <- try() })
			again = time.After(resolveAgain)
		}
		select {
		case err = <-results:
			if ended++; err == nil || ended == begun {
				return err
			}
		case <-again:
		}
	}
}

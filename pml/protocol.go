package pml

import (
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Protocol says how messages move that are too long to go with their MATCH.
type Protocol uint8

const (
	// Auto: by remote access where a rail has it and the message is long enough, a get rather
	// than a put; else in fragments.
	Auto Protocol = iota
	// Copy: always in fragments.
	Copy
	// Get: by the receiver's remote reads where that is possible, else in fragments.
	Get
	// Put: by the sender's remote writes where that is possible, else in fragments.
	Put
)

var protocolNames = [...]string{"auto", "copy", "get", "put"}

func (p Protocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ParseProtocol is the protocol with a name, as String gives it.
func ParseProtocol(name string) (Protocol, error) {
	for i, n := range protocolNames {
		if n == name {
			return Protocol(i), nil
		}
	}
	return 0, fmt.Errorf("no protocol %q", name)
}

// caps is what a protocol may use of a rail.
func (p Protocol) caps() btl.Caps {
	switch p {
	case Copy:
		return 0
	case Get:
		return btl.CapGet
	case Put:
		return btl.CapPut
	}
	return btl.CapGet | btl.CapPut
}

// remote reports whether a message of so many bytes to a peer is for remote access.
func (pr *peer) remote(bytes int64) bool { return pr.rdmaBytes > 0 && bytes >= int64(pr.rdmaBytes) }

// transfer is what a long message needs beside its request.
type transfer struct {
	stripes
	mine   registration // of our buffer
	theirs remotes
	list   []byte // exposures to be sent, kept until they are
	// pieces of a send that are queued or accepted, and not called back: few, see pipelineDepth.
	pieces []*btl.Op
	// Of a send: in how many attempts a rail has called a piece wrong, which rails have, and the
	// last one's error.
	mistakes int
	avoid    railSet
	wrong    error
}

// forget takes a piece of a send that was called back out of the list.
func (t *transfer) forget(op *btl.Op) {
	last := len(t.pieces) - 1
	t.pieces[slices.Index(t.pieces, op)] = t.pieces[last]
	t.pieces[last] = nil
	t.pieces = t.pieces[:last]
}

func (p *PML) getTransfer() *transfer {
	if t := p.freeTransfers.get(); t != nil {
		return t
	}
	return new(transfer)
}

// retire ends a transfer none of whose pieces is under way, if there is one. If keep is true its
// registration is kept, for a request that will be started again; but not if it failed, because
// then the peer may still be about to reach what it was told of.
func (p *PML) retire(t **transfer, keep, failed bool) {
	if *t == nil {
		return
	}
	(*t).mistakes, (*t).avoid, (*t).wrong = 0, 0, nil
	switch {
	case failed && (*t).mine.access != btl.AccessLocal:
		p.revoke(&(*t).mine)
	case keep && !failed:
		return
	}
	(*t).mine.release()
	p.freeTransfers.put(*t)
	*t = nil
}

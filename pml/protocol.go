package pml

import (
	"fmt"

	"github.com/mpigo/mpigo/bml"
	"github.com/mpigo/mpigo/btl"
)

// Protocol selects how messages that are too long to be eager are transferred.
type Protocol uint8

const (
	// Auto transfers messages that are long enough by remote access if a rail offers it, and
	// prefers reads to writes. Other messages are sent in fragments.
	Auto Protocol = iota
	// Copy sends all messages in fragments.
	Copy
	// Get uses remote reads where possible, else fragments.
	Get
	// Put uses remote writes where possible, else fragments.
	Put
)

var protocolNames = [...]string{"auto", "copy", "get", "put"}

func (p Protocol) String() string {
	if int(p) < len(protocolNames) {
		return protocolNames[p]
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ParseProtocol returns the protocol with a name from String.
func ParseProtocol(name string) (Protocol, error) {
	for i, n := range protocolNames {
		if n == name {
			return Protocol(i), nil
		}
	}
	return 0, fmt.Errorf("no protocol %q", name)
}

// caps returns the kinds of remote access that a protocol may use.
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

// endTransfer ends a request's transfer, if it has one. No piece of it is under way. With keep, the
// registration stays for the next start of the request, unless the transfer has failed.
func (p *PML) endTransfer(t **bml.Transfer, keep, failed bool) {
	if *t != nil && !p.bml.EndTransfer(*t, keep, failed) {
		*t = nil
	}
}

// AddMemory says that mem, which is not empty, stays valid until RemoveMemory. It is then
// registered only once, instead of for each message.
func (p *PML) AddMemory(mem []byte) { p.bml.AddMemory(mem) }

// RemoveMemory undoes AddMemory. No peer can access the memory when it returns. No active request
// uses the memory.
func (p *PML) RemoveMemory(mem []byte) { p.bml.RemoveMemory(mem) }

// fitsEager reports whether a message is short enough to go whole, without an answer of the
// receiver. All other code asks this function. bml/rail.go:BML.useFirst sets the limits, of which
// that for messages that the receiver cannot read in place is the higher one.
func (pr *peer) fitsEager(bytes int, mayRead bool) bool {
	if mayRead {
		return bytes <= pr.EagerBytes()
	}
	return bytes <= pr.EagerCopyBytes()
}

// mayRead reports whether the receiver is to read a message that does not go eagerly.
func (pr *peer) mayRead(bytes int) bool {
	return pr.MayRead(bytes) && pr.credit.covers(pr.RemoteKeysBytes())
}

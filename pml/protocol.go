package pml

import (
	"fmt"

	"github.com/mpigo/mpigo/bml"
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

// ParseProtocol returns the protocol with a name, as String gives it.
func ParseProtocol(name string) (Protocol, error) {
	for i, n := range protocolNames {
		if n == name {
			return Protocol(i), nil
		}
	}
	return 0, fmt.Errorf("no protocol %q", name)
}

// caps is the remote access that a protocol may use.
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

// endTransfer ends a request's transfer, if it has one and none of its pieces is under way (bml.EndTransfer).
func (p *PML) endTransfer(t **bml.Transfer, keep, failed bool) {
	if *t != nil && !p.bml.EndTransfer(*t, keep, failed) {
		*t = nil
	}
}

// AddMemory makes known that mem, which is not empty, stays where it is until RemoveMemory: it is registered once, and not for
// each message.
func (p *PML) AddMemory(mem []byte) { p.bml.AddMemory(mem) }

// RemoveMemory takes AddMemory back: no peer can reach the memory any more when it returns. No active request uses it.
func (p *PML) RemoveMemory(mem []byte) { p.bml.RemoveMemory(mem) }

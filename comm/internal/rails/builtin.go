package rails

import (
	"github.com/mpigo/mpigo/btl/ibverbs"
	"github.com/mpigo/mpigo/btl/loop"
	"github.com/mpigo/mpigo/btl/sm"
	"github.com/mpigo/mpigo/btl/tcp"
	"github.com/mpigo/mpigo/btl/transport"
)

// Builtin lists the transports that are built in, in any order. A new transport is added here, and
// nowhere else in comm.
func Builtin() []transport.Transport {
	return []transport.Transport{
		loop.Transport(),
		sm.Transport(),
		ibverbs.Transport(),
		tcp.Transport(),
	}
}

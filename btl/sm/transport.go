package sm

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
)

// Transport describes the rail between ranks of one machine.
func Transport() transport.Transport {
	return transport.Transport{Name: railName, Priority: 30, Reach: transport.Host, Open: openRail}
}

func openRail(env *transport.Env) (transport.Opened, error) {
	m, err := New(Config{
		Rank: env.Rank, Size: env.Size, Events: env.Events, Wakeup: env.Wakeup,
		RingSlots: int(env.Settings.Int("sm.ring.slots")),
		RingBytes: env.Settings.Bytes("sm.ring.bytes"),
		FragBytes: env.Settings.Bytes("sm.frag.bytes") + btl.MaxHeaderBytes,
	})
	if err != nil {
		return transport.Opened{}, err
	}
	return transport.Opened{Rails: []transport.Rail{{Module: m}}}, nil
}

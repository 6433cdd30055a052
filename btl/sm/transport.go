package sm

import (
	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
)

// The tunables of rings. All ranks of a machine must have the same values.
const slotsKey, ringKey, fragKey = "sm.ring.slots", "sm.ring.bytes", "sm.frag.bytes"

// Transport describes the rail between ranks of one machine.
func Transport() transport.Transport {
	return transport.Transport{Name: tunable.TransportSM, Reach: transport.Host, Open: openRail}
}

func openRail(env *transport.Env) (transport.Opened, error) {
	m, err := New(Config{
		Rank: env.Rank, Size: env.Size, Events: env.Events, Wakeup: env.Wakeup,
		RingSlots: int(env.Settings.Int(slotsKey)),
		RingBytes: env.Settings.Bytes(ringKey),
		FragBytes: env.Settings.Bytes(fragKey) + btl.MaxHeaderBytes,
	})
	if err != nil {
		return transport.Opened{}, err
	}
	return transport.Opened{Modules: []transport.Module{{Module: m}}}, nil
}

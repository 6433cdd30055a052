package loop

import (
	"fmt"

	"github.com/mpigo/mpigo/btl/transport"
	"github.com/mpigo/mpigo/internal/tunable"
)

// Transport describes the rail of a rank to itself.
func Transport() transport.Transport {
	return transport.Transport{Name: tunable.TransportSelf, Reach: transport.Itself, Open: openSelf}
}

func openSelf(env *transport.Env) (transport.Opened, error) {
	fabric, err := NewFabric(Config{Ranks: env.Size})
	if err != nil {
		return transport.Opened{}, fmt.Errorf("rail self: %w", err)
	}
	m, err := fabric.Module(env.Rank, 0, env.Events, env.Wakeup)
	if err != nil {
		return transport.Opened{}, fmt.Errorf("rail self: %w", err)
	}
	return transport.Opened{Modules: []transport.Module{{Module: m}}}, nil
}

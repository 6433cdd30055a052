package comm

import (
	"net"
	"path/filepath"

	"github.com/mpigo/mpigo/comm/internal/rails"
	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/relay"
	"github.com/mpigo/mpigo/internal/wireup"
)

// Under mpirun-go, the launcher asks each rank what it does through a descriptor that the rank
// inherits. Under another launcher, rank 0 asks the ranks (package relay). If that fails, the job
// continues without it.

// serveIntrospection answers the questions of mpirun-go about this rank, on a goroutine of its own,
// until close closes the connection. Lock held.
func (j *job) serveIntrospection(client *wireup.Client) {
	if client == nil || !client.HasOwnManager() {
		return // the inherited variable may belong to another job
	}
	conn := introspect.Inherited()
	if conn == nil {
		return
	}
	j.introspection = conn
	_ = introspect.Greet(conn) // before Init returns; it fits into the empty buffer of the socket
	go serve(conn, newDescriber(j))
}

// serve ends with the connection. The launcher sees a question that breaks the protocol as the end
// of the connection.
func serve(conn net.Conn, rank introspect.Describer) {
	defer conn.Close()
	_ = introspect.Serve(conn, rank)
}

// relayKey is the key under which rank 0 publishes the addresses of its hub.
const relayKey = "mpigo-relay"

// openRelay opens the hub at rank 0, under another launcher than mpirun-go, and publishes its
// addresses. It comes before the barrier of Init.
func (j *job) openRelay(client *wireup.Client) error {
	if client.HasOwnManager() || j.rank != 0 || j.size == 1 {
		return nil
	}
	hub, err := relay.Listen(j.size, rails.LocalRanks(client) == j.size)
	if err != nil {
		return nil
	}
	addresses, err := hub.Addresses()
	if err != nil {
		return hub.Close()
	}
	j.introspection = hub
	return client.Put(relayKey, addresses)
}

// joinRelay starts the hub at rank 0, and connects the other ranks to it. It comes after the
// barrier of Init.
func (j *job) joinRelay(client *wireup.Client) error {
	if client.HasOwnManager() || j.size == 1 || j.rank == 0 && j.introspection == nil {
		return nil
	}
	secret, err := client.Secret()
	if err != nil {
		return err
	}
	if hub, isHub := j.introspection.(*relay.Hub); isHub {
		if r := j.recording; r != nil && r.trace != nil {
			if dir, err := filepath.Abs(r.traceDir); err == nil {
				hub.SetTraceDir(dir, client.JobID())
			}
		}
		if hub.Start(secret, newDescriber(j)) != nil {
			j.introspection = nil
			return hub.Close()
		}
		return nil
	}
	addresses, err := client.Get(relayKey)
	if err != nil {
		return nil // rank 0 has no hub
	}
	joined, err := relay.Join(addresses, secret, j.rank, j.size, newDescriber(j))
	if err == nil {
		j.introspection = joined
	}
	return nil
}

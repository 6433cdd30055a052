package base

import "github.com/mpigo/mpigo/btl"

// Endpoint is the common part of a transport's endpoint: one end of one incarnation of the
// connection to a peer. A transport embeds it by value.
type Endpoint struct {
	path  btl.Path // its module is set once the endpoint is reportable
	epoch uint32
	state btl.State
	// reportable: the layer above knows the endpoint, so Failed and Drained are reported.
	reportable bool
	reported   bool // Events.Failed was called
	byModule   bool // failed with the whole module, whose events cover it

	deferred *btl.Error // the failure that a later progress call applies, nil if there is none
	cause    *btl.Error // of the failure, nil while the endpoint is Up
	culprit  *btl.Op    // the operation that met the deferred error; nil if none did

	// Pending are accepted operations that a later progress call completes and that are in no
	// other queue of the transport.
	Pending btl.Queue
}

// MakeEndpoint makes the common part of an endpoint to a peer. The endpoint is Up. A transport
// calls Return before Connect returns the endpoint; until then the layer above does not know it.
func MakeEndpoint(peer int, epoch uint32) Endpoint {
	return Endpoint{path: btl.Path{Peer: peer}, epoch: epoch}
}

// Path implements btl.Endpoint.
func (e *Endpoint) Path() btl.Path { return e.path }

// Peer is the rank at the other end.
func (e *Endpoint) Peer() int { return e.path.Peer }

// Epoch implements btl.Endpoint.
func (e *Endpoint) Epoch() uint32 { return e.epoch }

// SetEpoch changes the epoch of an endpoint that is not connected yet, if both ends agree on
// another epoch than this end has proposed.
func (e *Endpoint) SetEpoch(epoch uint32) { e.epoch = epoch }

// State implements btl.Endpoint.
func (e *Endpoint) State() btl.State { return e.state }

// Accepts reports whether the endpoint is Up and no failure of it is deferred.
func (e *Endpoint) Accepts() bool { return e.state == btl.Up && e.deferred == nil }

// Deferred is the failure that a later progress call applies, nil if there is none. It stays set
// once the endpoint has failed.
func (e *Endpoint) Deferred() *btl.Error { return e.deferred }

// Cause returns why the endpoint failed, or nil while it is Up.
func (e *Endpoint) Cause() *btl.Error { return e.cause }

// Return records that Connect returns the endpoint for a path. From then on, Failed and Drained are
// reported.
func (e *Endpoint) Return(to btl.Path) { e.path, e.reportable = to, true }

// IsReportable reports whether Connect has returned the endpoint.
func (e *Endpoint) IsReportable() bool { return e.reportable }

// common implements embedder.
func (e *Endpoint) common() *Endpoint { return e }

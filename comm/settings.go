package comm

import (
	"github.com/mpigo/mpigo/comm/internal/coll"
	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/pml"
)

// leastWindowBytes is the smallest window of a peer, for any number of peers.
const leastWindowBytes = 64 << 10

// makePML makes the point-to-point layer of the rank. resolve finds the rails to a peer.
func (j *job) makePML(resolve func(peer int) ([]pml.Route, error)) {
	j.pml = pml.New(pmlConfig(j, resolve))
	j.pml.OnOrphan(j.orphans())
	j.hub = coll.NewHub(j.pml, int(j.settings.Bytes("coll.shared.bytes")), func(bytes int) {
		j.progressAsync().collective(bytes)
	})
	j.hub.ByMessages = j.check != nil
}

// pmlConfig is the configuration of the point-to-point layer according to the user's settings.
func pmlConfig(j *job, resolve func(peer int) ([]pml.Route, error)) pml.Config {
	protocol, _ := pml.ParseProtocol(j.settings.String("pml.protocol")) // tunables permit no other
	return pml.Config{
		Rank: j.rank, Size: j.size, Engine: j.eng, Resolve: resolve,
		EagerBytes:  bytesIfSet(j.settings, "pml.eager.bytes"),
		Protocol:    protocol,
		RDMABytes:   bytesIfSet(j.settings, "pml.rdma.bytes"),
		Beside:      j.settings.Bool("pml.beside"),
		GraceNanos:  int64(j.settings.Duration("pml.grace")),
		OnRail:      j.onRail,
		OnLost:      j.onLost,
		OnTransfer:  j.onTransfer(),
		Tracer:      j.tracer(),
		WindowBytes: max(j.settings.Bytes("pml.unexpected.bytes")/int64(j.size), leastWindowBytes),
	}
}

// bytesIfSet is the limit that the user has set, at least 1. It is 0 if the user has set no limit:
// each rail then uses its own.
func bytesIfSet(settings tunable.Set, key string) int {
	if _, origin := settings.Text(key); origin == tunable.FromDefault {
		return 0
	}
	return int(max(settings.Bytes(key), 1))
}

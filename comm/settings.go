package comm

import (
	"github.com/mpigo/mpigo/pml"
	"github.com/mpigo/mpigo/internal/tunable"
)

// leastWindowBytes is what a rank keeps for each peer however many there are.
const leastWindowBytes = 64 << 10

// pmlConfig is what the user's settings mean to the point-to-point layer of a rank.
func pmlConfig(j *job, resolve func(peer int) ([]pml.Route, error)) pml.Config {
	protocol, _ := pml.ParseProtocol(j.settings.String("pml.protocol")) // tunables permit no other
	return pml.Config{
		Rank: j.rank, Size: j.size, Engine: j.eng, Resolve: resolve,
		EagerBytes:  bytesIfSet(j.settings, "pml.eager.bytes"),
		Protocol:    protocol,
		RDMABytes:   bytesIfSet(j.settings, "pml.rdma.bytes"),
		GraceNanos:  int64(j.settings.Duration("pml.grace")),
		OnRail:      j.onRail,
		WindowBytes: max(j.settings.Bytes("pml.unexpected.bytes")/int64(j.size), leastWindowBytes),
	}
}

// bytesIfSet is the limit that the user has set, at least 1; 0 leaves it to each rail.
func bytesIfSet(settings tunable.Set, key string) int {
	if _, origin := settings.Text(key); origin == tunable.FromDefault {
		return 0
	}
	return int(max(settings.Bytes(key), 1))
}

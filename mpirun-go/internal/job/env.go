package job

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/internal/introspect"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Identity is the part of the ranks' environment that is the same for all ranks of a job.
type Identity struct {
	JobID          string
	Secret         []byte // from wireup.NewSecret
	Size           int
	Oversubscribed bool // the host has more ranks than processors or slots
}

// RankEnv returns the environment of one rank. It consists of, in this order:
//
//   - base without the variables of another job, of which this launcher may be a rank;
//   - changes, in the form NAME=VALUE; later ones override earlier ones and base;
//   - the variables that identify the rank and its job.
func RankEnv(id Identity, rank, localRank, localSize int, base, changes []string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return isRankVariable(name)
	})
	identity := []string{
		fmt.Sprintf("PMI_FD=%d", procs.PMIFD),
		fmt.Sprintf("%s=%d", introspect.FDVariable, procs.IntrospectFD),
		fmt.Sprintf("PMI_RANK=%d", rank),
		fmt.Sprintf("PMI_ID=%d", rank),
		fmt.Sprintf("PMI_SIZE=%d", id.Size),
		"PMI_JOBID=" + id.JobID,
		"MPIGO_SECRET=" + hex.EncodeToString(id.Secret),
		fmt.Sprintf("MPIGO_RANK=%d", rank),
		fmt.Sprintf("MPIGO_SIZE=%d", id.Size),
		fmt.Sprintf("MPIGO_LOCAL_RANK=%d", localRank),
		fmt.Sprintf("MPIGO_LOCAL_SIZE=%d", localSize),
		fmt.Sprintf("MPI_LOCALRANKID=%d", localRank),
		fmt.Sprintf("MPI_LOCALNRANKS=%d", localSize),
	}
	if id.Oversubscribed {
		identity = append(identity, "MPIGO_OVERSUBSCRIBED=1")
	}
	return lastWins(slices.Concat(env, changes, identity))
}

// isRankVariable reports whether RankEnv or a rank may set the variable.
func isRankVariable(name string) bool {
	switch name {
	case introspect.FDVariable, wireup.EnvJoined, "MPIGO_INIT_PID", "MPIGO_SECRET", "MPIGO_RANK", "MPIGO_SIZE", "MPIGO_LOCAL_RANK", "MPIGO_LOCAL_SIZE", "MPIGO_OVERSUBSCRIBED",
		"MPI_LOCALRANKID", "MPI_LOCALNRANKS":
		return true
	}
	return strings.HasPrefix(name, "PMI_")
}

// lastWins keeps the last value of each name, at the position of the last. With several values of a
// name, it depends on the program which one it sees.
func lastWins(env []string) []string {
	seen := make(map[string]bool, len(env))
	kept := make([]string, 0, len(env))
	for _, pair := range slices.Backward(env) {
		name, _, _ := strings.Cut(pair, "=")
		if !seen[name] {
			seen[name] = true
			kept = append(kept, pair)
		}
	}
	slices.Reverse(kept)
	return kept
}

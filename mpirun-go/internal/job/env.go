package job

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
)

// Identity is what the ranks of one job have in common.
type Identity struct {
	JobID          string
	Secret         []byte // wireup.NewSecret
	Size           int
	Oversubscribed bool // more ranks on the host than processors or slots
}

// RankEnv is the environment of one rank: base without the traces of another
// job (this launcher may itself be a rank of one), then changes, NAME=VALUE that
// override each other in order, and last what tells the rank who it is.
func RankEnv(id Identity, rank, localRank, localSize int, base, changes []string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return isRankVariable(name)
	})
	ours := []string{
		fmt.Sprintf("PMI_FD=%d", procs.PMIFD),
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
		ours = append(ours, "MPIGO_OVERSUBSCRIBED=1")
	}
	return lastWins(slices.Concat(env, changes, ours))
}

// isRankVariable is whether RankEnv may set the variable.
func isRankVariable(name string) bool {
	switch name {
	case "MPIGO_SECRET", "MPIGO_RANK", "MPIGO_SIZE", "MPIGO_LOCAL_RANK", "MPIGO_LOCAL_SIZE", "MPIGO_OVERSUBSCRIBED",
		"MPI_LOCALRANKID", "MPI_LOCALNRANKS":
		return true
	}
	return strings.HasPrefix(name, "PMI_")
}

// lastWins keeps the last of several values of a name, in its place: which one a
// program would see otherwise depends on the program.
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

package wireup

import (
	"fmt"
	"strconv"
)

// Some launchers start several processes without PMI-1. Such a process must not run as a world of
// one rank. It is recognized by the launcher's environment variables.

// withoutPMI returns the error of a process with neither PMI_FD nor PMI_PORT: ErrNoLauncher if it
// is alone, ErrLauncher if it is one of several.
func withoutPMI(getenv func(string) string) error {
	several := func(variable string) bool {
		n, err := strconv.Atoi(getenv(variable))
		return err == nil && n > 1
	}
	refuse := func(process string) error {
		return fmt.Errorf("wireup: %w: %s; start the program by mpirun-go, mpiexec.hydra (MPICH) or srun --mpi=pmi2", ErrLauncher, process)
	}
	switch {
	case several("OMPI_COMM_WORLD_SIZE"):
		return refuse(fmt.Sprintf("rank %s of %s of Open MPI's mpirun, which speaks PMIx only", clip(getenv("OMPI_COMM_WORLD_RANK")), clip(getenv("OMPI_COMM_WORLD_SIZE"))))
	// The number of tasks in a step, which srun starts. SLURM_NTASKS is also set in a shell of
	// salloc and in a batch script, and SLURM_PROCID in a batch script, although these are single
	// processes.
	case several("SLURM_STEP_NUM_TASKS"):
		return refuse(fmt.Sprintf("task %s of %s of Slurm's srun, which ran without --mpi=pmi2", clip(getenv("SLURM_PROCID")), clip(getenv("SLURM_STEP_NUM_TASKS"))))
	// Other launchers with PMIx, which do not put the number of ranks in the environment.
	case getenv("PMIX_RANK") != "" && getenv("OMPI_COMM_WORLD_SIZE") == "" && getenv("SLURM_STEP_NUM_TASKS") == "":
		return refuse(fmt.Sprintf("rank %s of a launcher that speaks PMIx only", clip(getenv("PMIX_RANK"))))
	}
	if pid := getenv(EnvJoined); pid != "" {
		return joinedByParent(pid)
	}
	return fmt.Errorf("wireup: %w", ErrNoLauncher)
}

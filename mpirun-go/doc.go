// Mpirun-go starts the ranks of a job on this machine or on several hosts, forwards their input and
// output, and ends all ranks when one fails.
//
//	mpirun-go [flags] PROGRAM [ARG...] [: [flags] PROGRAM [ARG...]]...
//	mpirun-go info [--json] [--set KEY=VALUE] [--btl LIST]
//	mpirun-go bench [flags] NAME [ARG...]
//
// PROGRAM is a binary, the name of a command, or a Go package (./examples/ring, an import path, a
// .go file), which mpirun-go builds first with the user's go command. Several programs, separated
// by ":", form one job.
//
// bench runs the program github.com/mpigo/mpigo/bench, which measures the library, with two ranks
// unless -n says otherwise.
//
// Flags of each PROGRAM:
//
//	-n, -np N               number of ranks (default 1; with --map-by ppr:N:node, N on each host)
//	-x NAME[=VALUE]         set an environment variable; NAME alone requires it to be set
//	--wdir DIR              working directory
//
// Flags of the job, before the first PROGRAM:
//
//	-H, --host LIST         host[:slots],...
//	--hostfile FILE         file with lines "host slots=4"
//	--map-by slot|node|ppr:N:node  how ranks are assigned to hosts (default slot)
//	--launcher ssh|slurm|local, --agent COMMAND  how to reach other hosts (default ssh)
//	--connect-timeout DURATION  time limit for a host to answer (default 30s)
//	--btl LIST              allowed transports, in order of preference
//	--set KEY=VALUE         set a tunable; mpirun-go info lists them
//	--tags LIST             build tags for Go packages
//	--bind-to core|none     bind each rank to a core (default none)
//	--oversubscribe         allow more ranks than slots
//	--tag-output            begin each line with its rank
//	--timestamp-output      begin each line with the time
//	--output-dir DIR        write DIR/rank.N.stdout and DIR/rank.N.stderr instead
//	--stdin RANK|all|none   the ranks that read standard input (default 0)
//	--timeout DURATION      end the job after this time
//	-v, --verbose           print at start which transports connect the ranks
//	--version (or -v alone), -h, --help
//
// # Exit status
//
// The exit status is 0 if every rank exited with 0. Otherwise it is:
//
//   - the exit status of the first rank that failed, or 128+N if signal N killed it;
//   - the code of a rank that aborted the job;
//   - 124 after --timeout;
//   - 128+N if signal N to mpirun-go ended the job;
//   - 126 if PROGRAM is not executable, 127 if it is not found;
//   - 2 for a bad command line;
//   - 1 if a Go package does not build, a host is unreachable or lost, a rank called Init and
//     exited without Finalize, or a rank exited without Init although other ranks called it.
//
// One line on standard error names the failure.
//
// # Structure
//
// Package internal/cli parses the command line, internal/build finds or builds PROGRAM, and
// internal/slots places ranks. Package internal/job runs the job: it starts ranks through
// internal/procs, copies streams with internal/output and internal/stdin, and serves each rank's
// PMI connection with package wireup. Package internal/remote starts the ranks of other hosts, and
// is also the daemon on these hosts.
package main

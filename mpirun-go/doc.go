// Mpirun-go starts the ranks of a job on this machine or on several hosts, carries
// their input and output, and ends all of them when one fails.
//
//	mpirun-go [flags] PROGRAM [ARG...] [: [flags] PROGRAM [ARG...]]...
//	mpirun-go info [--json] [--set KEY=VALUE] [--btl LIST]
//	mpirun-go bench [flags] NAME [ARG...]
//
// PROGRAM is a binary, the name of a command, or a Go package (./examples/ring, an
// import path, a .go file), which is built first with the user's go. Several
// programs, separated by ":", make up one job.
//
// bench is the program github.com/mpigo/mpigo/bench, which measures the library, with two ranks if
// -n does not say otherwise.
//
// Of each PROGRAM:
//
//	-n, -np N               number of ranks (default 1; with --map-by ppr:N:node, N on each host)
//	-x NAME[=VALUE]         set an environment variable; NAME alone: it must be set
//	--wdir DIR              directory to run in
//
// Of the job, before the first PROGRAM:
//
//	-H, --host LIST         host[:slots],...
//	--hostfile FILE         the same as lines "host slots=4"
//	--map-by slot|node|ppr:N:node  how ranks are dealt out to hosts (default slot)
//	--launcher ssh|slurm|local, --agent COMMAND  what reaches other hosts (default ssh)
//	--connect-timeout DURATION  for a host to answer (default 30s)
//	--btl LIST              transports allowed, in order of preference
//	--set KEY=VALUE         a tunable; mpirun-go info lists them
//	--bind-to core|none     bind each rank to a core (default none)
//	--oversubscribe         more ranks than slots are meant
//	--tag-output            begin each line with its rank
//	--timestamp-output      begin each line with the time
//	--output-dir DIR        write DIR/rank.N.stdout and DIR/rank.N.stderr instead
//	--stdin RANK|all|none   who reads the standard input (default 0)
//	--timeout DURATION      end the job after this time
//	-v, --verbose           say at start which transports lead from rank to rank
//	--version (or -v alone), -h, --help
//
// # Exit status
//
// 0 if every rank ended with 0. Otherwise the first failing rank's, 128+N if signal
// N ended it; the code of a rank that aborted the job; 124 after --timeout; 128+N if
// signal N to mpirun-go ended the job; 126 and 127 if PROGRAM cannot be executed or
// found; 2 for a bad command line; 1 if a Go package does not build, a rank that
// had called Init exited without Finalize, or one exited without Init that others had
// called. One line on standard error says what happened.
//
// # How it is made
//
// The command line is read by internal/cli, PROGRAM found or built by
// internal/build, ranks are placed by internal/slots, and internal/job runs the
// job: it starts ranks through internal/procs, copies streams with internal/output and
// internal/stdin, and serves each rank's PMI connection with package wireup. Ranks of other
// hosts it starts through internal/remote, which is also what runs there.
package main

// Mpirun-go starts the ranks of a job on this machine or on several hosts, forwards their input and
// output, and ends all ranks when one fails.
//
//	mpirun-go [flags] PROGRAM [ARG...] [: [flags] PROGRAM [ARG...]]...
//	mpirun-go info [--json] [--set KEY=VALUE] [--btl LIST]
//	mpirun-go version
//	mpirun-go bench [flags] NAME [ARG...]
//	mpirun-go doctor [--hostfile FILE] [-H LIST] [--json] [-v]
//	mpirun-go diagnose [--json] [--dir DIR] [JOB]
//	mpirun-go top [--json] [JOB]
//
// PROGRAM is a binary, the name of a command, or a Go package (./examples/ring, an import path, a
// .go file), which mpirun-go builds first with the user's go command. Several programs, separated
// by ":", form one job.
//
// bench measures the library, with two ranks unless -n says otherwise. The ranks are mpirun-go
// itself (internal/bench), so it works outside a module.
//
// doctor runs a job of one rank on each host, which is mpirun-go itself, and prints what keeps jobs
// from running well (internal/doctor).
//
// diagnose asks the ranks of a running job what they do, through the socket of the job's launcher.
// top does so once a second, and shows rates (internal/live).
//
// mpirun-go --help (help.go) lists the flags, and mpirun-go info the tunables.
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
// PMI connection with package wireup. It asks the ranks what they do with package introspect, and
// internal/diagnose makes a report of their answers. Package internal/remote starts the ranks of
// other hosts, and is also the daemon on these hosts.
package main

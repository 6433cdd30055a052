package main

import "slices"

const help = `Usage: mpirun-go [flags] PROGRAM [ARG...] [: [flags] PROGRAM [ARG...]]...
       mpirun-go info [--json] [--set KEY=VALUE] [--btl LIST]
       mpirun-go bench [flags] NAME [ARG...]
       mpirun-go dlv [--rank RANK|all] [flags] PROGRAM [ARG...]
       mpirun-go doctor [--hostfile FILE] [-H LIST] [--json] [-v]
       mpirun-go diagnose [--json] [--dir DIR] [JOB]
       mpirun-go top [--json] [JOB]
       mpirun-go merge DIR
       mpirun-go version
       mpirun-go help [bench|diagnose|dlv|doctor|info|merge|top|version]

Runs PROGRAM as the ranks of one job, on this machine or on several hosts.
PROGRAM is a binary, the name of a command, or a Go package (./examples/ring),
which is built first.
bench measures the library that mpirun-go is of, in any directory, with 2 ranks
unless -n says otherwise: mpirun-go bench latency -m 8.
dlv runs a job with one rank, or all, in the debugger Delve.
doctor finds what keeps jobs from running well on this machine or on several hosts.
diagnose asks the ranks of a running job what they do, and says why they hang.
top shows what the ranks of a running job do, once a second.
merge makes one profile and trace of those of the ranks, for other launchers.

Flags of each PROGRAM:
  -n, -np N               number of ranks (default 1; with --map-by ppr:N:node
                          and one PROGRAM: N on each host)
  -x NAME[=VALUE]         set an environment variable; NAME alone requires it to
                          be set (ranks inherit the whole environment anyway)
  --wdir DIR              working directory

Flags of the job, before the first PROGRAM:
  -H, --host LIST         host[:slots],...; c[01-16]:8 means sixteen hosts
  --hostfile FILE         file with lines "host slots=4"
  --map-by slot|node|ppr:N:node
                          fill the slots of one host after another (default),
                          take one slot of each host in turn, or place N ranks
                          on each host
  --launcher ssh|slurm|local
                          how to connect to other hosts (default ssh); with
                          local, all hosts are this machine
  --agent COMMAND         command that connects to other hosts: 'ssh -F my.config'
  --connect-timeout DURATION
                          time limit for a host to answer (default 30s)
  --btl LIST              allowed transports, in order of preference; each rank
                          is reached by the first that connects to it; mpirun-go
                          info lists them
  --set KEY=VALUE         set a tunable; mpirun-go info lists them
  --tags LIST             build tags for PROGRAMs that are Go packages
  --bind-to auto|core|none
                          bind each rank to an equal share of the host's free
                          cores, if they suffice (auto, default), or to a core
  --report-bindings       print to which processors the ranks are bound
  --oversubscribe         allow more ranks than slots
  --tag-output            begin each line with its rank: "[3] "
  --timestamp-output      begin each line with the time
  --output-dir DIR        write DIR/rank.N.stdout and DIR/rank.N.stderr instead
  --profile DIR           count and time the calls of each rank: a page
                          DIR/profile.html and a text DIR/profile.txt
  --cpuprofile DIR        write a CPU profile of each rank for go tool pprof:
                          DIR/cpu.N.pprof
  --trace DIR             keep the last calls and messages of each rank: a page
                          DIR/trace.html, and DIR/trace.json for ui.perfetto.dev
  --stdin RANK|all|none   the ranks that read standard input (default 0)
  --timeout DURATION      end the job after this time: 30s, 5m, 1h30m; first print
                          what the ranks do
  --kill-after DURATION   time for the ranks to end after a signal to mpirun-go
                          or --timeout, before SIGKILL (default 2s, 300ms)
  --hang-after DURATION   when no rank has made progress for this time, print what
                          the ranks do and why they hang; the job goes on
                          (default 5m, 0: never); 10s for a certain deadlock
  --report-dir DIR        with each such report, write the stacks of all goroutines
                          into files in DIR
  --metrics ADDR          serve the ranks' counters to Prometheus, at
                          http://ADDR/metrics: 127.0.0.1:9101
  -v, --verbose           print at start which transports connect the ranks
  --version               print the version in one line; so does -v alone
  -h, --help              print this help

Exit status: 0 if every rank exited with 0; otherwise that of the first rank that
failed, or 128+N if signal N killed it; 124 after --timeout; 128+N if signal N to
mpirun-go ended the job; 126 if PROGRAM is not executable, 127 if it is not found;
2 for a bad command line; 1 for other failures, such as a Go package that does not
build or a host that cannot be reached.
`

const diagnoseHelp = `Usage: mpirun-go diagnose [--json] [--dir DIR] [JOB]

Asks the ranks of a running job of yours on this machine what they do, and prints why
they hang. The job goes on. JOB is its name or the process ID of its mpirun-go; it may
be left out if only one job runs.

  --json     print the finding and all that the ranks say as JSON
  --dir DIR  write report.txt, report.json, and a file for each rank with the stacks of
             its goroutines
`

const infoHelp = `Usage: mpirun-go info [--json] [--set KEY=VALUE] [--btl LIST]

Prints which transports are usable on this machine and why the others are not, the
properties of this machine, and every tunable with its value, the origin of the value (default, environment, command line),
its default and its environment variable.
`

const versionHelp = `Usage: mpirun-go version

Prints the version of the library and of mpirun-go, the commit if go recorded it, and
the transports that are built in.
`

const doctorHelp = `Usage: mpirun-go doctor [--hostfile FILE] [-H LIST] [--json] [-v]

Finds what keeps jobs from running, or from running fast, on this machine or on the
given hosts: limits, shared memory, RDMA devices, interfaces, and the network between
each two hosts. Each finding says what was found, what is wanted, what breaks, and
what fixes it.

  -H, --host LIST         as for a job: the slots are the ranks of each host
  --hostfile FILE         as for a job
  --launcher, --agent, --connect-timeout
                          as for a job
  --set KEY=VALUE, --btl LIST
                          the tunables of the jobs that you mean to run, such as
                          tcp.ports and tcp.include
  -v, --verbose           a line for each check, also for those that are well
  --json                  print everything as JSON

Exit status: 0 if nothing is broken (there may be warnings and hints), 1 if something
is, 2 for a bad command line.
`

const mergeHelp = `Usage: mpirun-go merge DIR

Makes profile.html and profile.txt of the files profile.N.json in DIR, and trace.html
and trace.json of trace.N.json. A job does that at its end. This is for jobs of other launchers, whose
ranks wrote into a shared DIR by MPIGO_PROFILE and MPIGO_TRACE, and for jobs whose
launcher was killed. DIR must have the files of one job only: a second
one is an error.
`

const topHelp = `Usage: mpirun-go top [--json] [JOB]

Shows what the ranks of a running job do, once a second, the worst rank first: bytes
and messages in and out per second, the rates of the last minute as bars, the rails with
their bytes and health, and the line of the program. q quits. JOB is the name of a job, or the process ID of its launcher; it may
be left out if one job of yours runs on this machine.

  --json                  print a JSON object each second

If the output is no terminal, or TERM is dumb, it prints what the ranks do within one
second. With NO_COLOR=1 the terminal gets no colors.
`

// subcommands lists the words that name a subcommand when they come first on a command line.
func subcommands() []string {
	return []string{"bench", "diagnose", "dlv", "doctor", "info", "merge", "top", "version"}
}

// helpOf returns the command line that prints the help of mpirun-go, or of one subcommand.
func helpOf(words []string) []string {
	if len(words) > 0 && slices.Contains(subcommands(), words[0]) {
		return []string{words[0], "--help"}
	}
	return []string{"--help"}
}

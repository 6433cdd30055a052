package main

const help = `Usage: mpirun-go [flags] PROGRAM [ARG...] [: [flags] PROGRAM [ARG...]]...
       mpirun-go info [--json]
       mpirun-go bench [flags] NAME [ARG...]

Runs PROGRAM as the ranks of one job, on this machine or on several hosts.
PROGRAM is a binary, the name of a command, or a Go package (./examples/ring),
which is built first.
bench measures the library (mpirun-go bench latency -m 8): it is the Go package
github.com/mpigo/mpigo/bench, with 2 ranks if -n does not say otherwise.

Of each PROGRAM:
  -n, -np N               number of ranks (default 1; with --map-by ppr:N:node
                          and one PROGRAM: N on each host)
  -x NAME[=VALUE]         set an environment variable; NAME alone: it must be set
                          (all of the environment is passed on anyway)
  --wdir DIR              directory to run in

Of the job, before the first PROGRAM:
  -H, --host LIST         host[:slots],...; c[01-16]:8 is sixteen hosts
  --hostfile FILE         the same as lines "host slots=4"
  --map-by slot|node|ppr:N:node
                          fill one host after another (default), deal out in
                          turn, or N ranks to each
  --launcher ssh|slurm|local
                          what reaches other hosts (default ssh); local: all
                          hosts are this machine
  --agent COMMAND         the command that does: 'ssh -F my.config'
  --connect-timeout DURATION
                          for a host to answer (default 30s)
  --btl LIST              transports allowed, in order of preference: the first
                          that leads to a rank is used; mpirun-go info lists them
  --set KEY=VALUE         a tunable; mpirun-go info lists them
  --tags LIST             build tags for PROGRAMs that are Go packages: ibverbs, ...
  --bind-to core|none     bind each rank to a core (default none)
  --oversubscribe         more ranks than slots are meant
  --tag-output            begin each line with its rank: "[3] "
  --timestamp-output      begin each line with the time
  --output-dir DIR        write DIR/rank.N.stdout and DIR/rank.N.stderr instead
  --stdin RANK|all|none   who reads the standard input (default 0)
  --timeout DURATION      end the job after this time: 30s, 5m, 1h30m
  -v, --verbose           say at start which transports lead from rank to rank
  --version               print the version; so does -v alone
  -h, --help              print this

Exit status: 0 if every rank ended with 0; else the first failing rank's, 128+N if
signal N ended it; 124 after --timeout; 128+N if signal N to mpirun-go ended the
job; 126 and 127 if PROGRAM cannot be executed or found; 2 for a bad command line;
1 if a Go package does not build, or a host cannot be reached.
`

const infoHelp = `Usage: mpirun-go info [--json] [--set KEY=VALUE] [--btl LIST]

Prints what is built in, what was found on this machine, and every tunable with
its value, where that comes from (default, environment, command line), its default
and its environment variable.
`

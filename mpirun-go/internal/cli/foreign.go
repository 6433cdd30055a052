package cli

// foreignFlagHint says what replaces a flag of Open MPI's, MPICH's or Slurm's launcher, or returns
// "".
func foreignFlagHint(name string) string {
	switch name {
	case "mca", "gmca":
		return "use --set KEY=VALUE, or --btl LIST"
	case "env", "genv":
		return "use -x NAME=VALUE"
	case "envall", "genvall":
		return "not needed, ranks get the launcher's environment"
	case "allow-run-as-root":
		return "not needed, root may run jobs"
	case "ppn", "perhost", "npernode", "N", "ntasks-per-node":
		return "use --map-by ppr:N:node"
	case "pernode":
		return "use --map-by ppr:1:node"
	case "c", "ntasks":
		return "use -n N"
	case "hosts", "w", "nodelist":
		return "use -H HOST,…"
	case "f", "machinefile", "machine", "default-hostfile":
		return "use --hostfile FILE"
	case "wd", "chdir":
		return "use --wdir DIR"
	case "display-map", "display-allocation", "display", "print-rank-map":
		return "use --report-bindings, which prints the host and the processors of each rank"
	case "rank-by", "ranking":
		return "there is none; --map-by slot or node numbers the ranks, and MPIGO_LOCAL_RANK is a rank's number on its host"
	case "cpus-per-proc", "cpus-per-rank", "cpus-per-task":
		return "not needed, --bind-to auto gives each rank an equal share of the free cores"
	case "bind-to-none":
		return "use --bind-to none"
	case "quiet", "q":
		return "not needed, mpirun-go prints only warnings and failures"
	case "grace-period", "k":
		return "use --kill-after DURATION"
	case "envlist", "genvlist":
		return "use -x NAME once for each variable"
	case "envnone", "genvnone":
		return "there is none; run mpirun-go with env -i NAME=VALUE…"
	case "prefix":
		return "not needed, the launcher brings itself and the program to each host"
	case "pty", "xterm", "tv", "debug", "gdb":
		return "there is none; put the command before PROGRAM, or attach dlv attach PID"
	case "rf", "rankfile":
		return "there is none; the order of hosts in -H or --hostfile, and --map-by, place the ranks"
	case "bootstrap", "rmk":
		return "use --launcher ssh, slurm or local"
	case "bootstrap-exec", "launcher-exec", "rsh-agent":
		return "use --agent COMMAND"
	case "iface":
		return "use --set tcp.include=INTERFACE"
	case "l", "prepend-rank":
		return "use --tag-output"
	case "output-filename", "outfile-pattern", "errfile-pattern":
		return "use --output-dir DIR"
	case "use-hwthread-cpus", "bind-to-core":
		return "use --bind-to core"
	case "nolocal", "app", "configfile":
		return "there is none; mpirun-go --help lists the flags"
	}
	return ""
}

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
	case "report-bindings", "display-map", "display-allocation":
		return "there is none; --map-by and --bind-to core decide, and taskset -cp PID shows where a rank may run"
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

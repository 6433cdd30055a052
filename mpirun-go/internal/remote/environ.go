package remote

import (
	"os"
	"slices"
	"strings"
)

// isHostSpecific reports whether a variable describes a machine or a login on it, and so is wrong
// on another machine.
func isHostSpecific(name string) bool {
	switch name {
	case "HOSTNAME", "HOST", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
		"WINDOWID", "TMUX", "TMUX_PANE", "STY", "GPG_AGENT_INFO", "GPG_TTY", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID",
		"SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_OVERLAP", "SLURM_CPU_BIND", "KRB5CCNAME":
		return true
	}
	for _, prefix := range []string{"SSH_", "XDG_SESSION_", "SLURMD_", "SLURM_STEP", "SLURM_CPU_BIND_", "SLURM_LAUNCH_", "SLURM_SRUN_", "KUBERNETES_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// Environ returns environ without variables that are specific to this host.
func Environ(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return isHostSpecific(name)
	})
}

// addLocalVariables adds this host's own host-specific variables to a rank's environment, unless
// the user has set them. A TMPDIR that does not exist on this host is replaced by this host's, or
// removed.
func addLocalVariables(env, local []string) []string {
	has := map[string]bool{}
	env = slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		if name == "TMPDIR" {
			if info, err := os.Stat(value); err != nil || !info.IsDir() {
				return true
			}
		}
		has[name] = true
		return false
	})
	for _, pair := range local {
		name, _, _ := strings.Cut(pair, "=")
		if !has[name] && (isHostSpecific(name) || name == "TMPDIR") {
			env = append(env, pair)
		}
	}
	return env
}

package remote

import (
	"os"
	"slices"
	"strings"
)

// hostBound is whether a variable says something of the machine, or of the login there, that is wrong on another one.
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

// Environ is environ without what holds for this machine only.
func Environ(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return isHostSpecific(name)
	})
}

// hereBound completes a rank's environment by what holds for this machine, unless the user has said otherwise. A
// TMPDIR that is not here is this machine's, or none.
func addLocalVariables(env, here []string) []string {
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
	for _, pair := range here {
		name, _, _ := strings.Cut(pair, "=")
		if !has[name] && (isHostSpecific(name) || name == "TMPDIR") {
			env = append(env, pair)
		}
	}
	return env
}

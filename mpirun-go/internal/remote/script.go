package remote

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// First arguments that select another main function on a host.
const (
	DaemonArg  = "--mpigo-daemon"
	InstallArg = "--mpigo-install" // followed by the arguments of Install
)

// Exit statuses of the script, and of a shell that cannot execute a file.
const (
	statusNoCache       = 73 // the cache cannot be used (EX_CANTCREAT of sysexits.h)
	statusNoCopy        = 74 // mpirun-go cannot be copied (EX_IOERR)
	statusNotExecutable = 126
)

// script returns a script that finds this program in the user's cache and executes it, with the
// umask that the script was started with. The script runs in any POSIX sh.
//
// The script decides where the cache is: it resolves symbolic links, and the daemon uses the
// directory that it is executed from. Every directory on the path of the program's file, and the
// file itself, must pass the rule of checkTrusted. The file must also have the right size. The
// daemon checks its hash. Only the ls of coreutils is known to show which files have access control
// lists, so with any other ls (busybox) the script trusts no group.
//
// The script receives a missing program into a file whose name it removes before the first byte
// arrives, so an interrupted start leaves nothing. It executes the program from that file, and the
// program puts itself into the cache (Install). Some shells (ksh) do not pass descriptors 8 and 9
// on to commands.
func (p Program) script() string {
	return strings.NewReplacer("HASH", p.hash, "SIZE", fmt.Sprint(p.size), "WANT", wantLine+p.hash, "DAEMON", DaemonArg, "INSTALL", InstallArg,
		"PART", tempPrefix, "NO_CACHE", fmt.Sprint(statusNoCache), "NO_COPY", fmt.Sprint(statusNoCopy)).Replace(
		`u=$(umask); umask 077; i=$(id -u); g=$(id -g); z=0; c="${XDG_CACHE_HOME:-$HOME/.cache}/mpigo"; ` +
			`[ "$g" = "$i" ] || g=none; case "$(ls --version 2>&1)" in *coreutils*) ;; *) g=none; z=none;; esac; ` +
			`trusted() { p="$1"; set -- $(ls -ldn "$p"); s="$5"; ` +
			`case "$3" in 0|"$i") ;; *) w=": $p belongs to another user"; return 1;; esac; ` +
			`case "${1%.} $3 $4" in [d-]????-??-*|d????????[tT]*) ;; [d-]???????-?" 0 $z"|[d-]???????-?" $3 $g") ;; ` +
			`*) w=": others may write to $p"; return 1;; esac; }; ` +
			`safe() { p="$1"; while trusted "$p"; do [ "$p" = / ] && return; p="${p%/*}"; p="${p:-/}"; done; return 1; }; ` +
			`w=", which must be a directory of the user"; ` +
			`mkdir -p "$c" && d=$(cd -P "$c" && pwd -P) && safe "$d" || { echo "cannot use $c$w" >&2; exit NO_CACHE; }; ` +
			`f="$d/HASH/mpirun-go"; ` +
			`good() { [ -f "$f" ] && [ -x "$f" ] && safe "$d/HASH" && trusted "$f" && [ "$s" = SIZE ]; }; ` +
			`good && umask "$u" && exec "$f" DAEMON; ` +
			`printf "\nWANT\n"; ` +
			`t=$(mktemp "$d/PARTXXXXXX") && chmod 700 "$t" && exec 8<>"$t" && rm -f "$t" && { head -c SIZE >&8; exec 9</proc/self/fd/8 8>&-; ` +
			`[ -s /proc/self/fd/9 ] || echo "nothing arrived on standard input: the agent must forward it" >&2; ` +
			`[ $(wc -c <&9) -eq SIZE ]; } && umask "$u" && exec /proc/self/fd/9 INSTALL HASH "$d"; ` +
			`echo "cannot install mpirun-go in $d" >&2; exit NO_COPY`)
}

// installFD is the descriptor on which the script has the received program open.
const installFD = 9

// Install puts this program into the cache in dir, and executes it there as the daemon. hash is the
// hash of the program that the launcher sent. Install returns only on failure, with an exit status.
func Install(hash, dir string) int {
	fmt.Fprintf(os.Stderr, "mpirun-go: cannot install mpirun-go in %s: %v\n", dir, install(hash, dir))
	return statusNoCopy
}

func install(hash, dir string) error {
	unix.CloseOnExec(installFD)
	if !isHash(hash) {
		return fmt.Errorf("%.70q is not a hash", hash)
	}
	c, err := openCache(dir)
	if err != nil {
		return err
	}
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	path, err := c.receive(offer{path: "mpirun-go", hash: hash, size: int(info.Size())}, io.Reader(file))
	if err != nil {
		return err
	}
	return os.NewSyscallError("execve", whileBusy(func() error {
		return unix.Exec(path, []string{path, DaemonArg}, os.Environ())
	}))
}

# For .ci/run and scripts/nightly.sh, which source it: runs steps, keeps what they print, and says in
# one line each how they went. $self is the script that sources it, and its arguments are the wanted
# steps; with none: all.

passed=0 failed=0 wanted=("$@")
for name in "${wanted[@]}"; do
    grep -qE "^step $name( |$)" "$self" || { echo "no step $name" >&2; exit 2; }
done
logs=$(mktemp -d "${TMPDIR:-/tmp}/mpigo-$(basename "$self" .sh).XXXXXX")

# step NAME COMMAND…: runs it if it is wanted, and shows the end of its output if it fails.
step() {
    local name=$1 log begin=$SECONDS
    shift
    if [ ${#wanted[@]} -gt 0 ]; then
        case " ${wanted[*]} " in *" $name "*) ;; *) return ;; esac
    fi
    log=$logs/$name.log
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
        printf 'ok    %-14s %4d s   %s\n' "$name" $((SECONDS - begin)) "$(tail -n 1 "$log" | cut -c1-120)"
    else
        failed=$((failed + 1))
        printf 'FAIL  %-14s %4d s   the end of %s:\n' "$name" $((SECONDS - begin)) "$log"
        tail -n 60 "$log" | sed 's/^/      /'
    fi
}

# summary: the last line, and the status of the script. The logs of a run without failures are removed.
summary() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && rm -rf "$logs"
    [ "$failed" -eq 0 ]
}

# apt_install PACKAGE…: installs Debian packages, as root.
apt_install() {
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# hosts SCRIPT…: runs it, with what it needs for several hosts, which are network namespaces of this machine.
hosts() {
    if ! { test -x /usr/sbin/sshd && command -v ip && command -v nft; } >/dev/null; then
        apt_install openssh-server iproute2 nftables || return
    fi
    "$@"
}

mpich() {
    command -v mpiexec.hydra >/dev/null && command -v mpicc.mpich >/dev/null && return
    apt_install mpich libmpich-dev gcc libc6-dev
}

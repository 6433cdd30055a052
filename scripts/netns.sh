# For hosts-netns.sh, hydra-hosts.sh and slurm.sh, which source it: makes hosts of this machine, network namespaces n1 to nN on a
# bridge. Each has its own address, host name and process numbers, so that ranks on two of them do not share memory. Needs root and iproute2.

# alone SCRIPT ARG…: goes on, from the beginning of SCRIPT, in namespaces of its own, as the host "front". What is made there meets nothing else on this
# machine, and is gone with the script, however that ends: the processes, the network, and $out, a directory in memory.
alone() {
    local status=0
    if [ -z "${MPIGO_ALONE:-}" ]; then
        local apart=(setpriv --pdeathsig KILL unshare --mount --net --uts --pid --fork --kill-child --mount-proc env MPIGO_ALONE=1 "$@")
        [ -t 0 ] && exec "${apart[@]}" # COMMAND may want to read what is typed
        set -m                         # or the script would not get Ctrl-C
        "${apart[@]}" <&0 &
        set +m
        trap 'kill -KILL $! 2>/dev/null || true' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        trap 'exit 129' HUP
        wait $! || status=$?
        exit "$status"
    fi
    unset MPIGO_ALONE
    hostname front
    ip link set lo up
    mount -t tmpfs tmpfs /run
    out=/run/mpigo
    mkdir "$out" /run/netns /run/sshd
}

# hosts N: makes them, and for this script and what it starts their names; NETNS_HOSTS is how many.
hosts() {
    export NETNS_HOSTS=$1
    local i address
    ip link add bridge type bridge
    ip link set bridge up
    ip addr add 10.77.255.254/16 dev bridge
    printf '127.0.0.1 localhost\n10.77.255.254 front\n' >"$out/hosts"
    mount --bind "$out/hosts" /etc/hosts
    for i in $(seq "$1"); do
        address=10.77.$((i / 200)).$((i % 200 + 1))
        echo "$address n$i" >>"$out/hosts"
        ip netns add "n$i"
        ip link add "to-n$i" type veth peer name eth0 netns "n$i"
        ip link set "to-n$i" master bridge up
        ip -n "n$i" addr add "$address/16" dev eth0
        ip -n "n$i" link set eth0 up
        ip -n "n$i" link set lo up
    done
}

# on HOST COMMAND…: runs COMMAND on the host, whose first process is a shell that takes in orphans: all others there end with it.
on() {
    local host=$1
    shift
    ip netns exec "$host" unshare --uts --pid --fork --kill-child --mount-proc sh -c 'hostname "$1"; shift; "$@" & wait' sh "$host" "$@"
}

# sshds N: an sshd and a home directory on each host, with keys that nobody else uses, which ssh knows.
sshds() {
    local i
    ssh-keygen -q -t ed25519 -N '' -f "$out/key"
    ssh-keygen -q -t ed25519 -N '' -f "$out/hostkey"
    cp "$out/key.pub" "$out/authorized"
    for i in $(seq "$1"); do
        echo "n$i $(cut -d' ' -f1,2 "$out/hostkey.pub")"
    done >"$out/known"
    # Before the sshds, whose mounts are their own from then on: with many hosts, some reach others.
    cat >"$out/config" <<CONF
Host *
    IdentityFile $out/key
    IdentitiesOnly yes
    UserKnownHostsFile $out/known
    BatchMode yes
    CheckHostIP no
CONF
    mount --bind "$out/config" /etc/ssh/ssh_config
    for i in $(seq "$1"); do
        mkdir "$out/home.$i"
        cat >"$out/sshd.$i" <<CONF
HostKey $out/hostkey
AuthorizedKeysFile $out/authorized
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
SetEnv HOME=$out/home.$i XDG_CACHE_HOME=$out/home.$i/.cache
CONF
        on "n$i" /usr/sbin/sshd -D -e -f "$out/sshd.$i" 2>"$out/log.$i" &
    done
    for i in $(seq "$1"); do
        eventually ssh "n$i" true || { cat "$out/log.$i"; exit 1; }
    done
}

fail() { echo "FAIL: $*"; exit 1; }

# same GOT WANTED WHAT: a check.
same() { [ "$1" = "$2" ] || fail "$3: $1, and not $2"; echo "ok: $3"; }

# eventually COMMAND…: tries until it works, for at most half a minute; then its output is shown.
eventually() {
    local try
    for try in $(seq 300); do
        "$@" >"$out/tried" 2>&1 && return
        sleep 0.1
    done
    echo "in vain: $*"
    cat "$out/tried"
    return 1
}

# lines FILE COUNT PATTERN: whether so many lines match.
lines() { [ "$(grep -c -e "$3" "$1")" = "$2" ]; }

# gone COMMAND-LINE: whether no process, on any host, has it.
gone() { ! pgrep -f "$1"; }

# right N: what bytes (scripts/bytes) says as N ranks.
right() { echo "$1 ranks, $((2622409 * $1 * $1)) bytes, all of them right"; }

# up N: waits until the N ranks of endless (scripts/endless), started in the background with its output in $out/up and $out/said, run.
up() { eventually lines "$out/up" "$1" pid || fail "the job did not start: $(cat "$out/said")"; }

# over WHAT STATUS…: such a job, the last one started in the background, has to end, with one of these, and without leaving ranks on any host.
over() {
    local what=$1 status=0
    shift
    timeout 30 tail --pid=$! -f /dev/null || fail "$what: it does not end"
    wait $! || status=$?
    case " $* " in *" $status "*) ;; *) fail "$what: status $status: $(cat "$out/said")" ;; esac
    eventually gone "^[^ ]*endless" || fail "$what: ranks are left"
    echo "ok: $what, status $status"
}

# told PATTERN COUNT: $out/said has so many such lines (1).
told() { lines "$out/said" "${2:-1}" "$1" || fail "not ${2:-1} of \"$1\": $(cat "$out/said")"; }

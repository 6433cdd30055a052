# Functions for the scripts, which source this file. It sets $self, the script's path, and $root,
# the repository.
# shellcheck shell=bash

self=$(readlink -f "$0")
root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")

# scratch: makes the directory $out, which is removed when the script ends.
scratch() {
    out=$(mktemp -d)
    trap 'rm -rf "$out"' EXIT
}

# pack_release MODULE@VERSION: packs the commit at HEAD, in the current directory, as module proxies
# do, into $proxy in $out, and has go take the version from there, and its dependencies from the
# module cache or from GOPROXY. A module cache in $out keeps the version out of the user's.
pack_release() {
    local module=${1%@*} version=${1#*@} cached
    proxy=$out/pack/cache/download
    cached=file://$(go env GOMODCACHE)/cache/download
    export GOFLAGS="$(go env GOFLAGS) -modcacherw" GOWORK=off
    # go reads the module's repository from a clone with the tag.
    git clone --quiet --bare . "$out/repository"
    git -C "$out/repository" tag --force "$version" "$(git rev-parse HEAD)" >/dev/null
    (
        cd "$out"
        GOMODCACHE=$out/pack GOPRIVATE=$module GIT_CONFIG_COUNT=1 \
            GIT_CONFIG_KEY_0=url.file://$out/repository.insteadOf GIT_CONFIG_VALUE_0=https://$module \
            go mod download "$module@$version"
    )
    export GOMODCACHE=$out/cache GOPROXY="file://$proxy,$cached,$(go env GOPROXY)"
    export GONOSUMDB="$module" # the checksum database does not know the version
}

# readme_program: the program in README.md.
readme_program() { sed -n '/^```go/,/^```/{//d;p}' "$root/README.md" | sed -n '/^package main/,/^}$/p'; }

# help: prints the comment at the beginning of the script.
help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$self"; }

# now: the system's clock in microseconds.
now() { echo "${EPOCHREALTIME/./}"; }

# Checks.

fail() { echo "FAIL: $*"; exit 1; }

# same GOT WANT WHAT: fails unless GOT is WANT.
same() { [ "$1" = "$2" ] || fail "$3: got $1, want $2"; echo "ok: $3"; }

# eventually COMMAND…: repeats the command until it succeeds, for at most 30 s; then prints its
# output.
eventually() {
    for _ in $(seq 300); do
        "$@" >"$out/tried" 2>&1 && return
        sleep 0.1
    done
    echo "failed for 30 s: $*"
    cat "$out/tried"
    return 1
}

# lines FILE COUNT PATTERN: whether COUNT lines of the file match.
lines() { [ "$(grep -c -e "$3" "$1")" = "$2" ]; }

# gone PATTERN: whether no process on any host has a command line that matches.
gone() { ! pgrep -f "$1"; }

# printed PATTERN [COUNT]: fails unless COUNT lines (1) of $out/errors match.
printed() {
    lines "$out/errors" "${2:-1}" "$1" || fail "not ${2:-1} lines match \"$1\": $(cat "$out/errors")"
}

# correct N: the output of "jobs bytes" with N ranks.
correct() { echo "$1 ranks, $((2622409 * $1 * $1)) bytes, all correct"; }

# endless: the command line of a rank of "jobs endless", as a pattern.
endless='^[^ ]*/jobs endless'

# up N: waits until the N ranks of "jobs endless" run. The job was started in the background, with
# its output in $out/up and $out/errors.
up() { eventually lines "$out/up" "$1" pid || fail "the job did not start: $(cat "$out/errors")"; }

# over WHAT STATUS…: the job of "jobs endless" that was started last in the background must end with
# one of the exit statuses, and leave no rank on any host. On a busy machine Slurm takes long.
over() {
    local what=$1 status=0
    shift
    timeout 100 tail --pid=$! -f /dev/null || fail "$what: the job does not end"
    wait $! || status=$?
    case " $* " in *" $status "*) ;; *) fail "$what: exit status $status: $(cat "$out/errors")" ;; esac
    eventually gone "$endless" || fail "$what: ranks are left"
    echo "ok: $what, exit status $status"
}

# failures LOG: prints the output of each test that failed in a log of "go test -v", after its name.
# Prints the end of the log instead if the log is incomplete.
failures() {
    awk '
        $1 == "===" { test = $3; next }
        $1 == "---" { if ($2 == "FAIL:") failed[++n] = $3; ended = 0; next }
        { output[test] = output[test] $0 "\n"; ended = $1 == "FAIL" || $1 == "PASS" }
        END {
            for (i = n; i > 0; i--)
                if (output[failed[i]] != "") printf "--- FAIL: %s\n%s", failed[i], output[failed[i]]
            exit !ended
        }' "$1" || tail -n 40 "$1"
}

# Hosts made of this machine.

# isolate ARG…: starts the script again, with these arguments, in namespaces of its own, as the host
# "front". Processes, networks, and $out, a directory in memory, do not affect the rest of the
# machine, and disappear when the script ends, for whatever reason.
isolate() {
    local status=0
    if [ -z "${MPIGO_ISOLATED:-}" ]; then
        local command=(setpriv --pdeathsig KILL unshare --mount --net --uts --pid --fork --kill-child --mount-proc
            env MPIGO_ISOLATED=1 "$self" "$@")
        [ -t 0 ] && exec "${command[@]}" # the script's command may read from the terminal
        set -m                           # or the script does not get Ctrl-C
        "${command[@]}" <&0 &
        set +m
        trap 'kill -KILL $! 2>/dev/null || true' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        trap 'exit 129' HUP
        wait $! || status=$?
        exit "$status"
    fi
    unset MPIGO_ISOLATED
    hostname front
    ip link set lo up
    mount -t tmpfs tmpfs /run
    out=/run/mpigo
    mkdir "$out" /run/netns /run/sshd
}

# hosts N: makes the hosts n1 to nN, network namespaces on a bridge, each with an address of its
# own, and their names for this script and its children. NETNS_HOSTS is their number.
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

# on HOST COMMAND…: runs a command on a host, with a host name and process ids of its own, so that
# ranks on two hosts do not share memory. Its first process is a shell that reaps orphans; all other
# processes end with it.
on() {
    local host=$1
    shift
    ip netns exec "$host" unshare --uts --pid --fork --kill-child --mount-proc \
        sh -c 'hostname "$1"; shift; "$@" & wait' sh "$host" "$@"
}

# cable N [RATE]: joins the hosts n1 and n2 by a cable, whose devices are rN.
cable() {
    ip link add "r$1" netns n1 type veth peer name "r$1" netns n2
    rail "$@"
}

# rail N [RATE]: gives the devices rN of n1 and n2 addresses, and a rate, and brings them up.
rail() {
    local h
    for h in 1 2; do
        ip -n n$h addr add "10.78.$1.$h/24" dev "r$1"
        ip -n n$h link set "r$1" up
        [ -z "${2:-}" ] || tc -n n$h qdisc add dev "r$1" root tbf rate "$2" burst 128kb limit 1mb
    done
}

# sshds N: starts an sshd on each host, with a home directory and with keys that only this script's
# ssh knows. The directory $out/local is another one on each host.
sshds() {
    local i
    mkdir "$out/local"
    ssh-keygen -q -t ed25519 -N '' -f "$out/key"
    ssh-keygen -q -t ed25519 -N '' -f "$out/hostkey"
    cp "$out/key.pub" "$out/authorized"
    for i in $(seq "$1"); do
        echo "n$i $(cut -d' ' -f1,2 "$out/hostkey.pub")"
    done >"$out/known"
    # Written before the sshds start, because each has its own mounts from then on, and with many
    # hosts some of them connect to others.
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
        # shellcheck disable=SC2016 # for the host's shell
        on "n$i" sh -c 'mount -t tmpfs tmpfs "$1" && exec /usr/sbin/sshd -D -e -f "$2"' sh "$out/local" "$out/sshd.$i" 2>"$out/log.$i" &
    done
    for i in $(seq "$1"); do
        eventually ssh "n$i" true || { cat "$out/log.$i"; exit 1; }
    done
}

# The cases of failover-verbs.sh and tcp-failover.sh.

# failover_cases ARG…: reads [-v] [-marks] [CASE…] into $verbose, $marks and $cases. $all lists the
# cases. A case may be followed by a colon and one of the words that match the pattern $variants.
failover_cases() {
    local case
    verbose="" marks=""
    case "${1:-}" in -h | --help) help; echo "The cases are: ${all[*]}"; exit ;; esac
    if [ "${1:-}" = -v ]; then verbose=-v; shift; fi
    if [ "${1:-}" = -marks ]; then marks=-marks; shift; fi
    cases=("$@")
    [ ${#cases[@]} -gt 0 ] || cases=("${all[@]}")
    for case in "${cases[@]}"; do
        case " ${all[*]} " in *" ${case%%:*} "*) [[ $case =~ ^[a-z-]+(:(${variants:-none}))?$ ]] && continue ;; esac
        echo "$(basename "$self"): there is no case $case; the cases are: ${all[*]}" >&2
        exit 2
    done
}

failover_header() {
    echo '| case | detected after, ms | switch, ms | longest stall, ms | gap before, ms | gap from the fault on, ms' \
        '| MB/s before | during | after | back after, ms | failures | resent | restarted | result |'
}

# failover_result LABEL STATUS: shows the row of a case, from the file line, and the output of the
# job, from the file errors. Fails if the case did.
failover_result() {
    cat line
    [ -z "$verbose" ] || cat errors
    if [ "$2" = 0 ]; then
        grep -q ' ok' line && ! grep -q FAIL line
        return
    fi
    echo "| $1 | FAIL: exit status $2 |"
    tail -n 100 errors
    return 1
}

# Steps, for .ci/run and nightly.sh.

# steps NAME…: the steps to run; with none: all. Each begins a line of the script. A result of each
# goes to the file $logs/results, because some run in another process.
steps() {
    local name
    wanted=("$@") aside=""
    for name in "${wanted[@]}"; do
        grep -qE "^ *step(_once)? +$name( |$)" "$self" || { echo "$(basename "$self"): there is no step $name" >&2; exit 2; }
    done
    logs=$(mktemp -d "${TMPDIR:-/tmp}/mpigo-$(basename "$self" .sh).XXXXXX")
    : >"$logs/results"
}

# beside COMMAND…: runs a function that has steps beside the steps that follow, with what these
# leave of the processors.
beside() {
    (
        renice -n 19 -p "$BASHPID" >/dev/null
        "$@"
        true # the steps have told their results
    ) &
    aside=$!
    trap 'kill "$aside" 2>/dev/null; exit 130' INT TERM # no further step begins
}

# step NAME COMMAND…: runs the command if the step is wanted, and prints a line with its result. A
# command that fails without a data race or a panic runs once more, because other programs may have
# held up a process for long. If it passes then, the line says UNSTABLE, and both logs stay: find
# out why. After a failure the lines of its output that name a cause follow, then the end of its
# output. So a report that is cut short still says what failed.
step() { run_step 2 "$@"; }

# step_once NAME COMMAND…: step for a command that gives the same result each time, or repeats what
# fails itself.
step_once() { run_step 1 "$@"; }

run_step() {
    local runs=$1 name=$2 log begin=$SECONDS unstable='' status=0
    shift 2
    if [ ${#wanted[@]} -gt 0 ]; then
        case " ${wanted[*]} " in *" $name "*) ;; *) return ;; esac
    fi
    log=$logs/$name.log
    "$@" >"$log" 2>&1 || status=$?
    if [ $status -ne 0 ] && [ "$runs" -gt 1 ] && ! grep -qE 'DATA RACE|(^|[^a-z])(panic|fatal error):' "$log"; then
        mv "$log" "$logs/$name.first.log"
        status=0
        "$@" >"$log" 2>&1 || status=$?
        if [ $status -eq 0 ]; then
            unstable="UNSTABLE, see $logs/$name.first.log: "
            keep_logs
        else
            { echo "It failed twice. The first time:"; causes "$logs/$name.first.log"; } >>"$log"
        fi
    fi
    if [ $status -eq 0 ]; then
        echo ok >>"$logs/results"
        printf 'ok    %-14s %4d s   %s%s\n' "$name" $((SECONDS - begin)) "$unstable" "$(tail -n 1 "$log" | cut -c1-120)"
    else
        echo failed >>"$logs/results"
        printf 'FAIL  %-14s %4d s   %s:\n%s\n' "$name" $((SECONDS - begin)) "$log" \
            "$({ causes "$log"; echo "the end:"; tail -n 60 "$log"; } | sed 's/^/      /')"
    fi
}

# causes LOG: the first 16 different lines of a log that name a cause: failed tests, data races,
# panics and the messages of checks.
causes() {
    grep -E '(^| )(=== FAIL|--- FAIL|FAIL|FAIL:|fatal error:|panic:) |DATA RACE|^ *[a-z_]+_test\.go:[0-9]+: |Error:' \
        "$1" | awk '!seen[$0]++' | cut -c1-200 | head -n 16
}

# keep_logs: has summary leave the logs.
keep_logs() { touch "$logs/keep"; }

# summary: waits for the steps beside, and prints how many steps passed. Its status is the script's.
# The logs go away if none failed and no step has called keep_logs.
summary() {
    local failed
    [ -z "$aside" ] || wait "$aside" || { echo failed >>"$logs/results"; echo "FAIL: the steps beside ended early"; }
    failed=$(grep -c failed "$logs/results")
    echo "$(grep -c ok "$logs/results") passed, $failed failed"
    [ "$failed" -eq 0 ] && [ ! -e "$logs/keep" ] && rm -rf "$logs"
    [ "$failed" -eq 0 ]
}

# installed COMMAND…: whether all commands exist. A name with a slash is a file.
installed() { command -v "$@" >/dev/null && [ "$(command -v "$@" | wc -l)" = $# ]; }

# apt_install PACKAGE…: installs Debian packages, as root.
apt_install() {
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
}

# with_hosts SCRIPT…: installs the packages for several hosts on this machine, and runs the script.
with_hosts() {
    installed /usr/sbin/sshd ip nft || apt_install openssh-server iproute2 nftables || return
    "$@"
}

mpich() { installed mpiexec.hydra mpicc.mpich || apt_install mpich libmpich-dev gcc libc6-dev; }

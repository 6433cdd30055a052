#!/usr/bin/env bash
# Kills and interrupts jobs: a rank, the launcher, Ctrl-C; and runs one with a useless /dev/shm.
# Each job must end soon, with the right exit status, print one clear line, and leave no process or
# file.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
out=$(mktemp -d)
trap 'rm -rf "$out"; pkill -KILL -f "$out/" || true' EXIT
go build -o "$out/" ./mpirun-go ./examples/ring ./scripts/jobs
ranks="$out/jobs endless"
files=$(ls /dev/shm | sort)

# start N: starts N endless ranks and waits until all of them run.
start() {
    "$out/mpirun-go" -n "$1" --oversubscribe $ranks >"$out/up" 2>"$out/errors" &
    launcher=$!
    up "$1"
}
pid_of() { awk -v r="$1" '$2 == r { print $4 }' "$out/up"; }

# leaves_nothing WHAT: no rank may be left after two seconds, and no file in /dev/shm.
leaves_nothing() {
    for _ in $(seq 40); do
        pgrep -f "$ranks" >/dev/null || break
        sleep 0.05
    done
    pgrep -f "$ranks" >/dev/null && fail "$1: ranks are left"
    [ "$(ls /dev/shm | sort)" = "$files" ] || fail "$1: files are left in /dev/shm"
    echo "ok: $1"
}

# ends WHAT STATUS SINCE: the launcher must end with the exit status within a second of SINCE.
ends() {
    local status=0 ms
    wait "$launcher" || status=$?
    ms=$((($(now) - $3) / 1000))
    [ "$status" = "$2" ] || fail "$1: exit status $status, not $2"
    [ "$ms" -le 1000 ] || fail "$1: took $ms ms"
    echo "$1: exit status $status after $ms ms: $(cat "$out/errors")"
}

start 4; t=$(now); kill -KILL "$(pid_of 2)"
ends "kill -9 of rank 2" 137 "$t"
# Ranks that exchanged messages with rank 2 may print errors, too.
printed '^mpirun-go: '
printed '^mpirun-go: rank 2 '
leaves_nothing "kill -9 of a rank"

start 4; t=$(now); kill -TERM "$(pid_of 0)"
ends "SIGTERM to rank 0" 143 "$t"
leaves_nothing "SIGTERM to a rank"

start 4; t=$(now); kill -INT "$launcher"
ends "Ctrl-C" 130 "$t"
leaves_nothing "Ctrl-C"

start 4; kill -KILL "$launcher"; wait "$launcher" 2>/dev/null || true
leaves_nothing "kill -9 of the launcher"

# The library's shared memory has no name in /dev/shm, so the size and permissions of /dev/shm do
# not matter.
unshare --mount --map-root-user sh -c "mount -t tmpfs -o size=4k,ro tmpfs /dev/shm && exec '$out/mpirun-go' -n 2 '$out/ring'" >/dev/null ||
    fail "a /dev/shm that is tiny and read-only"
echo "ok: a /dev/shm that is tiny and read-only"
echo "survived everything"

#!/usr/bin/env bash
# Death and interruption: of a rank, of the launcher, Ctrl-C; a /dev/shm that is of no use. Every case must
# end soon, with the right exit status, one clear line, and no process or file left behind.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
out=$(mktemp -d); trap 'rm -rf "$out"; pkill -KILL -f "$out/" || true' EXIT
go build -o "$out/mpirun-go" ./mpirun-go
go build -o "$out/endless" ./scripts/endless
go build -o "$out/ring" ./examples/ring
shm=$(ls /dev/shm | sort)

fail() { echo "FAIL: $*"; exit 1; }

# start N: runs endless with N ranks until every rank has said its pid.
start() {
    "$out/mpirun-go" -n "$1" --oversubscribe "$out/endless" >"$out/stdout" 2>"$out/stderr" &
    launcher=$!
    for _ in $(seq 200); do
        [ "$(grep -c pid "$out/stdout" || true)" = "$1" ] && return
        sleep 0.05
    done
    fail "the job did not start: $(cat "$out/stderr")"
}
pid_of() { awk -v r="$1" '$2 == r { print $4 }' "$out/stdout"; }
now() { date +%s%N; }

# gone WHAT: no rank is left within two seconds.
gone() {
    for _ in $(seq 40); do
        pgrep -f "$out/endless" >/dev/null || break
        sleep 0.05
    done
    pgrep -f "$out/endless" >/dev/null && fail "$1: processes are left"
    [ "$(ls /dev/shm | sort)" = "$shm" ] || fail "$1: files are left in /dev/shm"
    echo "ok: $1"
}

# ended WHAT STATUS SINCE: the launcher has ended with that status, within a second of SINCE.
ended() {
    local status=0
    wait "$launcher" || status=$?
    local millis=$((($(now) - $3) / 1000000))
    [ "$status" = "$2" ] || fail "$1: exit status $status, not $2"
    [ "$millis" -le 1000 ] || fail "$1: took $millis ms"
    echo "$1: exit status $status after $millis ms: $(cat "$out/stderr")"
}

start 4; t=$(now); kill -KILL "$(pid_of 2)"
ended "kill -9 of rank 2" 137 "$t"
# Ranks that talked to it may have had the time to say so.
[ "$(grep -c '^mpirun-go: ' "$out/stderr")" = 1 ] || fail "not one line: $(cat "$out/stderr")"
grep -q '^mpirun-go: rank 2 ' "$out/stderr" || fail "the line does not name rank 2"
gone "kill -9 of a rank"

start 4; t=$(now); kill -TERM "$(pid_of 0)"
ended "SIGTERM to rank 0" 143 "$t"
gone "SIGTERM to a rank"

start 4; t=$(now); kill -INT "$launcher"
ended "Ctrl-C" 130 "$t"
gone "Ctrl-C"

start 4; kill -KILL "$launcher"; wait "$launcher" 2>/dev/null || true
gone "kill -9 of the launcher"

# Shared memory has no name in /dev/shm, so its size and permissions do not matter.
unshare --mount --map-root-user sh -c "mount -t tmpfs -o size=4k,ro tmpfs /dev/shm && exec '$out/mpirun-go' -n 2 '$out/ring'" >/dev/null ||
    fail "a /dev/shm that is tiny and read-only"
echo "ok: a /dev/shm that is tiny and read-only"
echo "survived everything"

#!/usr/bin/env bash
# Makes N hosts of this machine, n1 to nN, each with an sshd and a home directory of its own, runs
# COMMAND where ssh reaches them (mpirun-go -H n1,n2), and removes everything. Without COMMAND it
# runs a few jobs, which must succeed. Needs root, openssh-server and iproute2.
# Usage: hosts-netns.sh N [COMMAND…]
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
case "${1:-}" in
    -h | --help) help; exit ;;
    "" | *[!0-9]*) help >&2; exit 2 ;;
esac
isolate "$@"
n=$1
shift
hosts "$n"
sshds "$n"

if [ $# -gt 0 ]; then
    "$@"
    exit
fi

cd "$root"
go build -o "$out/" ./mpirun-go ./examples/ring ./scripts/jobs
list=$(seq -s, -f n%g:2 "$n") ranks=$((2 * n))
run() { timeout 60 "$out/mpirun-go" -H "$list" -n "$ranks" --oversubscribe "$@"; }
same "$(run hostname | sort -u | wc -l)" "$n" "ranks on $n hosts"
want=$(timeout 60 "$out/mpirun-go" -n "$ranks" --oversubscribe "$out/ring" | tail -n 1)
same "$(run --map-by node "$out/ring" | tail -n 1)" "$want" "a ring"
same "$(run --map-by node --btl self,tcp -v "$out/ring" 2>"$out/errors" | tail -n 1)" "$want" "a ring over TCP"
printed '^mpigo: rank 0: tcp(eth0 10\.77\.[0-9.]*) to '
status=0
# shellcheck disable=SC2016 # for the rank's shell
run sh -c '[ $MPIGO_RANK = 1 ] && exit 7; sleep 1000' 2>"$out/errors" || status=$?
same "$status" 7 "the exit status of a failing rank"
printed 'rank 1 (pid [0-9]*) on n1 exited with status 7'
"$out/mpirun-go" -H "$list" -n "$ranks" --oversubscribe "$out/jobs" endless >"$out/up" 2>"$out/errors" &
launcher=$!
up "$ranks"
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null || true # keeps the shell from reporting the kill
eventually gone "$endless" && echo "ok: no rank is left after the launcher was killed"

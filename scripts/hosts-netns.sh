#!/usr/bin/env bash
# Makes N hosts of this machine, n1 to nN (netns.sh), each with its own sshd and home directory; and takes all of it away again.
# Usage: hosts-netns.sh N [COMMAND…]   runs COMMAND where ssh reaches them, for mpirun-go -H n1,n2;
# without COMMAND: a few jobs, which have to go well. Needs root, openssh-server and iproute2.
set -euo pipefail
usage="usage: hosts-netns.sh N [COMMAND…]; it runs COMMAND, or else a few jobs, where ssh reaches the hosts n1 to nN"
case "${1:-}" in
    -h | --help) echo "$usage"; exit ;;
    "" | *[!0-9]*) echo "$usage" >&2; exit 2 ;;
esac
hosts=$1
. "$(dirname "$(readlink -f "$0")")/netns.sh"
alone "$0" "$@"
shift
hosts "$hosts"
sshds "$hosts"

if [ $# -gt 0 ]; then
    "$@"
    exit
fi

cd "$(dirname "$(readlink -f "$0")")/.."
go build -o "$out/" ./mpirun-go ./examples/ring ./scripts/endless
list=$(seq -s, -f n%g:2 "$hosts") ranks=$((2 * hosts))
run() { timeout 60 "$out/mpirun-go" -H "$list" -n "$ranks" --oversubscribe "$@"; }
same "$(run hostname | sort -u | wc -l)" "$hosts" "ranks on $hosts hosts"
want=$(timeout 60 "$out/mpirun-go" -n "$ranks" --oversubscribe "$out/ring" | tail -n 1)
same "$(run --map-by node "$out/ring" | tail -n 1)" "$want" "a ring"
same "$(run --map-by node --btl self,tcp -v "$out/ring" 2>"$out/said" | tail -n 1)" "$want" "a ring over TCP"
grep -q '^mpigo: rank 0: tcp(eth0 10\.77\.[0-9.]*) to ' "$out/said" || fail "$(cat "$out/said")"
status=0
# shellcheck disable=SC2016 # for the rank's shell
run sh -c '[ $MPIGO_RANK = 1 ] && exit 7; sleep 1000' 2>"$out/said" || status=$?
same "$status" 7 "the status of a failing rank"
grep -q 'rank 1 (pid [0-9]*) on n1 exited with status 7' "$out/said" || fail "$(cat "$out/said")"
"$out/mpirun-go" -H "$list" -n "$ranks" --oversubscribe "$out/endless" >"$out/up" 2>"$out/said" &
launcher=$!
eventually lines "$out/up" "$ranks" pid || fail "$(cat "$out/said")"
kill -KILL "$launcher"
wait "$launcher" 2>/dev/null || true # the shell is not to tell of it
eventually gone "^$out/endless" && echo "ok: nothing is left of a launcher that was killed"

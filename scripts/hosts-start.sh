#!/usr/bin/env bash
# How long a job takes to start: from the launcher's start until the last rank is through Init, and until the launcher ends; and for comparison the
# agent alone, which reaches all hosts at once and does nothing there, and the same ranks on one machine. The hosts are those of hosts-netns.sh, and have all files already.
# Usage: hosts-start.sh [HOSTS [RANKS [RUNS]]]   by default 8 hosts, 64 ranks in all and the medians of 5 runs. Needs what hosts-netns.sh needs.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
hosts=${1:-8} ranks=${2:-64} runs=${3:-5}
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh "$hosts" scripts/hosts-start.sh "$hosts" "$ranks" "$runs"
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
go build -o "$out/" ./mpirun-go ./scripts/start

# job NAME FLAG…: one line for Init and one for the end, in microseconds.
job() {
    local name=$1 begin=${EPOCHREALTIME/./} end
    shift
    timeout 120 "$out/mpirun-go" "$@" -n "$ranks" --oversubscribe "$out/start" >"$out/times"
    end=${EPOCHREALTIME/./}
    [ "$(wc -l <"$out/times")" = "$ranks" ]
    echo "$name-init $(($(sort -n "$out/times" | tail -n 1) - begin))"
    echo "$name-end $((end - begin))"
}
# agent: the same for the agent alone, with sessions of its own as the launcher gives it: the system may share out processors by these.
agent() {
    local begin=${EPOCHREALTIME/./} pids=()
    for i in $(seq "$hosts"); do
        setsid --wait ssh "n$i" true &
        pids+=($!)
    done
    wait "${pids[@]}"
    echo "agent $((${EPOCHREALTIME/./} - begin))"
}
several=(-H "$(seq -s, -f "n%g:$(((ranks + hosts - 1) / hosts))" "$hosts")")
job first "${several[@]}" >"$out/first" # brings the files
for _ in $(seq "$runs"); do
    job hosts "${several[@]}"
    agent
    job here
done | sort -k1,1 -k2n | awk -v hosts="$hosts" -v ranks="$ranks" -v runs="$runs" '
    { a[$1, ++n[$1]] = $2 / 1e6 }
    function median(k) { return a[k, int((n[k] + 1) / 2)] }
    END {
        printf "%d ranks on %d hosts: through Init after %.2f s, ended after %.2f s; ", ranks, hosts, median("hosts-init"), median("hosts-end")
        printf "the agent alone %.2f s; on one machine %.2f s, %.2f s (medians of %d)\n", median("agent"), median("here-init"), median("here-end"), runs
    }'

#!/usr/bin/env bash
# Measures how long a job takes to start on several hosts: from the start of the launcher until the
# last rank has returned from Init, and until the launcher ends. Compares with the same ranks on one
# machine, and with the agent alone, which reaches all hosts at once and runs nothing there. The
# hosts are made by hosts-netns.sh, and already have all files.
# Usage: hosts-start.sh [HOSTS [RANKS [RUNS]]]
# By default 8 hosts, 64 ranks in all, medians of 5 runs. Needs what hosts-netns.sh needs.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
hosts=${1:-8} ranks=${2:-64} runs=${3:-5}
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh "$hosts" "$self" "$hosts" "$ranks" "$runs"
scratch
go build -o "$out/" ./mpirun-go ./scripts/jobs

# job NAME FLAG…: runs a job and prints a line for Init and a line for the end, in microseconds.
job() {
    local name=$1 begin end
    shift
    begin=$(now)
    timeout 120 "$out/mpirun-go" "$@" -n "$ranks" --oversubscribe "$out/jobs" init-time >"$out/times"
    end=$(now)
    [ "$(wc -l <"$out/times")" = "$ranks" ]
    echo "$name-init $(($(sort -n "$out/times" | tail -n 1) - begin))"
    echo "$name-end $((end - begin))"
}
# agent: the same for the agent alone. Each runs in a session of its own, as the launcher's agents
# do, because the system may distribute processor time by session.
agent() {
    local begin pids=()
    begin=$(now)
    for i in $(seq "$hosts"); do
        setsid --wait ssh "n$i" true &
        pids+=($!)
    done
    wait "${pids[@]}"
    echo "agent $(($(now) - begin))"
}
several=(-H "$(seq -s, -f "n%g:$(((ranks + hosts - 1) / hosts))" "$hosts")")
job first "${several[@]}" >"$out/first" # copies the files to the hosts
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

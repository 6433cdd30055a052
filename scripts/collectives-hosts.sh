#!/usr/bin/env bash
# Measures allreduce, bcast and reduce of 16 ranks on four hosts, which are network namespaces of
# this machine, over TCP: as they are by default, where the ranks of a host work together in shared
# memory ("by host"); with messages only ("flat"); and Open MPI, if it is installed. The contenders
# take turns. Prints medians, and the medians of the ratios of each round.
# Needs root, openssh-server and iproute2.
# Usage: collectives-hosts.sh [-marks] [ROUNDS [SIZE…]]
#   -marks  fail if "by host" takes more than 0.7 of the time of "flat" or 0.9 of Open MPI's
# By default there are 5 rounds, and the sizes are 8 1K 64K 1M.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
marks=0 hosts=4 per=4
case "${1:-}" in
    -h | --help) help; exit ;;
    -marks) marks=1; shift ;;
esac
rounds=${1:-5}
[ $# -eq 0 ] || shift
case "$rounds" in "" | *[!0-9]* | 0) help >&2; exit 2 ;; esac
sizes=("$@")
[ ${#sizes[@]} -gt 0 ] || sizes=(8 1K 64K 1M)
cd "$root"
if [ -z "${NETNS_HOSTS:-}" ]; then
    arguments=()
    [ "$marks" = 0 ] || arguments=(-marks)
    exec scripts/hosts-netns.sh "$hosts" "$self" "${arguments[@]}" "$rounds" "${sizes[@]}"
fi

scratch
go build -o "$out/" ./mpirun-go ./bench
ranks=$((hosts * per))
contenders=(by-host flat)
if installed mpicc.openmpi mpirun.openmpi; then
    mpicc.openmpi -std=gnu11 -O2 -o "$out/peer" bench/peers/peer.c
    contenders+=(openmpi)
fi

# run CONTENDER BENCHMARK SIZE: prints the mean time of a call in microseconds.
run() {
    local list measure=("$2" -m "$3" -i "$iterations" -x 10) ours
    list=$(seq -s, -f "n%g:$per" "$hosts")
    ours=("$out/mpirun-go" -H "$list" -n "$ranks" --oversubscribe)
    case "$1" in
        by-host) timeout 120 "${ours[@]}" "$out/bench" "${measure[@]}" ;;
        flat) timeout 120 "${ours[@]}" --set coll.shared.bytes=0 "$out/bench" "${measure[@]}" ;;
        openmpi)
            timeout 120 mpirun.openmpi --allow-run-as-root -H "$list" -n "$ranks" --oversubscribe --bind-to none \
                --mca mpi_yield_when_idle 1 --mca plm_rsh_agent ssh --mca btl self,vader,tcp \
                --mca btl_tcp_if_include 10.77.0.0/16 --mca oob_tcp_if_include 10.77.0.0/16 \
                "$out/peer" "${measure[@]}" | sed 's/.*"value":\([0-9.]*\),.*/0 \1/'
            ;;
    esac 2>"$out/errors" | awk '$1 ~ /^[0-9]+$/ { print $2 }' | tail -n 1 | grep . ||
        fail "$1, $2 of $3: $(tail -n 5 "$out/errors")" >&2
}

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# ratio OTHER: the median of the ratios to another contender's times.
ratio() { paste "$out/by-host" "$out/$1" | awk '{ print $1 / $2 }' | median; }

echo "| $ranks ranks on $hosts hosts | by host, us | flat, us | Open MPI, us | by host / flat | by host / Open MPI |"
missed=0
for benchmark in allreduce bcast reduce; do
    for size in "${sizes[@]}"; do
        iterations=200
        case "$size" in *K) iterations=100 ;; *M) iterations=20 ;; esac
        rm -f "$out/by-host" "$out/flat" "$out/openmpi"
        for _ in $(seq "$rounds"); do
            for contender in "${contenders[@]}"; do
                run "$contender" "$benchmark" "$size" >>"$out/$contender"
            done
        done
        row="| $benchmark $size | $(median <"$out/by-host") | $(median <"$out/flat")" peer=- beside=-
        if [ -f "$out/openmpi" ]; then
            peer=$(median <"$out/openmpi") beside=$(ratio openmpi)
        fi
        against=$(ratio flat)
        echo "$row | $peer | $against | $beside |"
        missed=$((missed + $(awk -v a="$against" -v b="$beside" 'BEGIN { print (a > 0.7) + (b != "-" && b > 0.9) }')))
    done
done
[ "$marks" = 0 ] || [ "$missed" = 0 ] || fail "$missed limits are missed"

#!/usr/bin/env bash
# Runs mpigo's programs under MPICH's launcher, and MPICH's programs under mpirun-go. Needs Debian's
# mpich, libmpich-dev and gcc.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
go build -o "$out/" ./mpirun-go ./examples/{ring,pi,heat2d} ./internal/wireup/interop/ranks
mpicc.mpich -o "$out/mpich" internal/wireup/interop/mpich.c
cd "$out"
for e in ring pi "heat2d -o hydra.png"; do
    echo "\$ mpiexec.hydra -n 4 ./$e"
    # shellcheck disable=SC2086 # words
    mpiexec.hydra -n 4 ./$e | tee hydra.txt
    echo "\$ mpirun-go -n 4 ./$e"
    # shellcheck disable=SC2086 # words
    ./mpirun-go -n 4 ./${e/hydra.png/mpigo.png} | tee mpigo.txt
    [ -s hydra.txt ]
done
cmp hydra.png mpigo.png

# check WHAT STATUS COUNT PATTERN COMMAND…: COMMAND must end within a minute with STATUS ("-": any
# but 0), and COUNT lines of its output must match PATTERN.
check() {
    local what=$1 want=$2 count=$3 pattern=$4 got=0
    shift 4
    timeout 60 "$@" >output 2>&1 </dev/null || got=$?
    [ "$want" != - ] || want=$((got && got != 124 ? got : 1))
    [ "$got" = "$want" ] && lines output "$count" "$pattern" ||
        fail "$what: status $got, want $want, and $count lines with \"$pattern\": $(head -n 40 output)"
    echo "ok: $what"
}

echo "wireup's client under Hydra, $(mpiexec.hydra -info | awk '/Version:/ {print $2; exit}')"
check "one rank"               0 1 'rank 0 of 1 ok' mpiexec.hydra -n 1 ./ranks
check "four ranks"             0 4 'of 4 ok.* nodes \[0 0 0 0\]' mpiexec.hydra -n 4 ./ranks
check "PMI_PORT"               0 3 'of 3 ok' mpiexec.hydra -pmi-port -n 3 ./ranks
check "two programs"           0 3 'of 3 ok' mpiexec.hydra -n 2 ./ranks : -n 1 ./ranks
check "two nodes, round robin" 0 4 'nodes \[0 1 0 1\]' mpiexec.hydra -launcher fork -hosts localhost,127.0.0.1 -ppn 1 -n 4 ./ranks
check "abort gives its code"   7 0 'of 3 ok' mpiexec.hydra -n 3 ./ranks abort
check "death ends the barrier" - 0 'of 3 ok' mpiexec.hydra -n 3 ./ranks die

run=(./mpirun-go --oversubscribe --launcher local) # all hosts are this machine
for program in ranks mpich; do
    echo "$program under mpirun-go"
    check "one rank"             0 1 'rank 0 of 1 ok' "${run[@]}" -n 1 ./$program
    check "abort gives its code" 7 1 '^mpirun-go: rank 1 .* aborted the job with code 7' "${run[@]}" -n 3 ./$program abort
    check "abort alone"          7 1 '^mpirun-go: rank 0 .* 7$' "${run[@]}" -n 1 ./$program abort
    check "death is reported"    5 1 '^mpirun-go: rank 1 .* exited with status 5' "${run[@]}" -n 3 ./$program die
done
check "nodes"                  0 3 'of 3 ok, nodes \[0 1 0\]' "${run[@]}" -H a:2,b:1 --map-by node -n 3 ./ranks
check "a program without PMI"  0 0 '' "${run[@]}" -n 2 true
check "one node"               0 4 'of 4 ok, 4 on its node' "${run[@]}" -n 4 ./mpich
check "two nodes in blocks"    0 4 'of 4 ok, 2 on its node' "${run[@]}" -H a:2,b:2 -n 4 ./mpich
check "two nodes, round robin" 0 4 'of 4 ok, 2 on its node' "${run[@]}" -H a:2,b:2 --map-by node -n 4 ./mpich
check "uneven nodes"           0 3 'of 6 ok, 3 on its node' "${run[@]}" -H a:1,b:2,c:3 -n 6 ./mpich
check "spawn is refused"       0 2 'spawn refused' "${run[@]}" -n 2 ./mpich spawn

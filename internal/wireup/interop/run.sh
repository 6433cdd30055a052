#!/usr/bin/env bash
# Checks wireup against MPICH: our client under Hydra (mpiexec.hydra), MPICH's programs
# under our server. Needs Go, mpiexec.hydra and mpicc.mpich (Debian: mpich, libmpich-dev).
# Prints one line a check. The exit status is 1 if a check failed.
# Usage: internal/wireup/interop/run.sh
set -u
cd "$(dirname "$(readlink -f "$0")")" || exit 2
. ./check.sh

for tool in go mpiexec.hydra mpicc.mpich; do
    command -v "$tool" >/dev/null || { echo "$tool is missing (Debian: mpich, libmpich-dev)"; exit 1; }
done
go build -o "$work/launch" ./launch && go build -o "$work/ranks" ./ranks &&
    mpicc.mpich -o "$work/mpich" mpich.c || { echo "build failed"; exit 1; }
launch=$work/launch ranks=$work/ranks mpich=$work/mpich

echo "our client under Hydra, $(mpiexec.hydra -info | awk '/Version:/ {print $2; exit}')"
check "one rank"                 0 1 'rank 0 of 1 ok'        mpiexec.hydra -n 1 "$ranks"
check "four ranks"               0 4 'of 4 ok.* nodes \[0 0 0 0\]' mpiexec.hydra -n 4 "$ranks"
check "PMI_PORT"                 0 3 'of 3 ok'               mpiexec.hydra -pmi-port -n 3 "$ranks"
check "two programs, second"     0 1 'of 3 ok.* app 1,'      mpiexec.hydra -n 2 "$ranks" : -n 1 "$ranks"
check "two nodes, round robin"   0 4 'nodes \[0 1 0 1\]'     mpiexec.hydra -launcher fork -hosts localhost,127.0.0.1 -ppn 1 -n 4 "$ranks"
check "universe size"            0 1 'universe 12'           mpiexec.hydra -usize 12 -n 1 "$ranks"
check "abort gives its code"     7 0 'of 3 ok'               mpiexec.hydra -n 3 "$ranks" abort
check "death ends the barrier"   - 0 'of 3 ok'               mpiexec.hydra -n 3 "$ranks" die

echo "MPICH's programs under our server"
check "one rank"                 0 1 'rank 0 of 1 ok'        "$launch" -n 1 "$mpich"
check "four ranks"               0 4 'of 4 ok, 4 on its node' "$launch" -n 4 "$mpich"
check "all finalize"             0 4 'served ., finalized: <nil>' "$launch" -n 4 "$mpich"
check "PMI_PORT"                 0 3 'of 3 ok, 3 on its node' "$launch" -port -n 3 "$mpich"
check "two nodes in blocks"      0 4 'of 4 ok, 2 on its node' "$launch" -nodes 0,0,1,1 -n 4 "$mpich"
check "two nodes, round robin"   0 4 'of 4 ok, 2 on its node' "$launch" -nodes 0,1,0,1 -n 4 "$mpich"
check "uneven nodes"             0 3 'of 6 ok, 3 on its node' "$launch" -nodes 3,1,1,9,9,9 -n 6 "$mpich"
check "abort gives its code"     7 1 'rank 1 aborts: code 7' "$launch" -n 3 "$mpich" abort
check "abort alone"              7 1 'rank 0: exit status 7' "$launch" -n 1 "$mpich" abort
check "death is reported"            5 1 'served 1, gone'        "$launch" -n 3 "$mpich" die
check "spawn is refused"         0 2 'spawn refused'         "$launch" -n 2 "$mpich" spawn

echo "our client under our server, between processes"
check "four ranks"               0 4 'of 4 ok'               "$launch" -n 4 "$ranks"
check "PMI_PORT"                 0 3 'of 3 ok'               "$launch" -port -n 3 "$ranks"
check "nodes"                    0 3 'nodes \[0 1 0\]'       "$launch" -nodes 7,2,7 -n 3 "$ranks"
check "abort gives its code"     7 1 'rank 1 aborts: code 7 "as asked for"' "$launch" -n 3 "$ranks" abort
check "death ends the barrier"   - 1 'served 1, gone'        "$launch" -n 3 "$ranks" die
check "a program without PMI"      0 2 'never inited: <nil>'   "$launch" -n 2 true

summary

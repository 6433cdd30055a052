#!/usr/bin/env bash
# Runs the examples as processes: few ranks, many, and more than the machine has cores.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
go build -o "$out/" ./mpirun-go ./examples/{ring,wordcount,pi,heat2d,failover}
cd "$out"
run() { echo "\$ mpirun-go $*"; ./mpirun-go "$@"; }
run -n 2 ./ring
run -n 16 --oversubscribe ./ring
run -n 4 ./heat2d -o four.png | tee four.txt
run -n 1 ./heat2d -o one.png | tee one.txt
run -n 16 --oversubscribe ./heat2d -o sixteen.png
cmp one.png four.png
cmp one.png sixteen.png
run -n 4 ./pi
run -n 16 --oversubscribe ./pi
run -n 16 --oversubscribe ./wordcount "$(go env GOROOT)/src/net" >words.16
run -n 1 ./wordcount "$(go env GOROOT)/src/net" >words.1
cmp <(sed 1d words.16) <(sed 1d words.1)
run -n 2 ./failover -time 1s
run -n 1 ./failover -time 2s | tee failover.txt
grep -q 'failed 7 times, came back 7 times' failover.txt
echo "examples: outputs are equal for every number of ranks"

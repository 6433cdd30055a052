#!/usr/bin/env bash
# MPICH's mpiexec.hydra and our programs on three hosts (netns.sh), which it reaches by ssh; and MPICH's program on them under mpirun-go.
# Needs root, openssh-server, iproute2, and Debian's mpich, libmpich-dev and gcc.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/netns.sh"
alone "$0" "$@"
hosts 3
sshds 3
cd "$(dirname "$(readlink -f "$0")")/.."
go build -o "$out/" ./mpirun-go ./examples/ring ./scripts/bytes ./scripts/endless
mpicc.mpich -o "$out/mpich" internal/wireup/interop/mpich.c
cd "$out"
printf 'n%d:2\n' 1 2 3 >hostfile
status=0

hydra=(mpiexec.hydra -f hostfile -launcher ssh -iface bridge)
want=$(timeout 60 ./mpirun-go -n 6 --oversubscribe ./ring)
same "$(MPIGO_VERBOSE=true timeout 60 "${hydra[@]}" -n 6 ./ring 2>said)" "$want" "a ring on three hosts"
told '^mpigo: rank 0: sm to 1; tcp(eth0 10\.77\.[0-9.]*) to 2-5$'
same "$(MPIGO_BTL=self,tcp timeout 60 "${hydra[@]}" -n 6 ./ring)" "$want" "a ring over TCP"
same "$(timeout 60 "${hydra[@]}" -ppn 1 -n 3 hostname | sort | xargs)" "n1 n2 n3" "a rank on each host"
same "$(timeout 60 "${hydra[@]}" -ppn 1 -n 3 ./bytes)" "$(right 3)" "every byte between hosts"
same "$(timeout 60 "${hydra[@]}" -n 6 ./bytes)" "$(right 6)" "every byte between and within hosts"
timeout 60 "${hydra[@]}" -n 6 ./ring -laps -1 >said 2>&1 || status=$?
same "$status" 1 "the status of an error exit"
told 'mpigo: rank 0: -laps is -1: it cannot be negative$'
"${hydra[@]}" -n 6 ./endless >up 2>said &
up 6
pkill -KILL -f -n '^[^ ]*/endless'
over "a rank dies" 9 137 255 # 255 if another host's daemon loses its connection before mpiexec knows
lines up 1 'PID [0-9]* RUNNING AT n[1-3]$' || fail "$(cat up)"
"${hydra[@]}" -n 6 ./endless >up 2>said &
up 6
kill -INT $!
over "Ctrl-C" 2 130 255

# MPICH's ranks find each other through mpirun-go's daemons. Its UCX takes the three hosts for the one machine that they are, unless it is told
# otherwise, and over TCP MPI_Finalize often does not return, under Hydra too.
mpich() { timeout 60 ./mpirun-go -H n1:2,n2:2,n3:2 -n 6 --oversubscribe -x UCX_TLS=tcp,self ./mpich "$@"; }
status=0
mpich leave >up 2>said || status=$?
same "$status" 3 "mpirun-go: the status of MPICH's program"
same "$(sort up)" "$(for rank in 0 1 2 3 4 5; do echo "rank $rank of 6 ok, 2 on its node"; done)" "mpirun-go: MPICH's program on three hosts"
status=0
mpich die >up 2>said || status=$?
same "$status" 5 "mpirun-go: a rank of MPICH's that dies"
told '^mpirun-go: rank 1 (pid [0-9]*) on n1 exited with status 5'
echo "as it should be with MPICH $(mpiexec.hydra -info | awk '/Version:/ {print $2; exit}')"

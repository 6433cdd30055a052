#!/usr/bin/env bash
# Starts mpigo's programs on three hosts by MPICH's mpiexec.hydra, which reaches them by ssh, and
# MPICH's program on them by mpirun-go. The hosts are network namespaces of this machine.
# Needs root, openssh-server, iproute2, and Debian's mpich, libmpich-dev and gcc.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
isolate "$@"
hosts 3
sshds 3
cd "$root"
go build -o "$out/" ./mpirun-go ./examples/ring ./scripts/jobs
mpicc.mpich -o "$out/mpich" internal/wireup/interop/mpich.c
cd "$out"
printf 'n%d:2\n' 1 2 3 >hostfile
status=0

hydra=(mpiexec.hydra -f hostfile -launcher ssh -iface bridge)
want=$(timeout 60 ./mpirun-go -n 6 --oversubscribe ./ring)
same "$(MPIGO_VERBOSE=true timeout 60 "${hydra[@]}" -n 6 ./ring 2>errors)" "$want" "a ring on three hosts"
printed '^mpigo: rank 0: sm to 1; tcp(eth0 10\.77\.[0-9.]*) to 2-5$'
same "$(MPIGO_BTL=self,tcp timeout 60 "${hydra[@]}" -n 6 ./ring)" "$want" "a ring over TCP"
same "$(timeout 60 "${hydra[@]}" -ppn 1 -n 3 hostname | sort | xargs)" "n1 n2 n3" "a rank on each host"
same "$(timeout 60 "${hydra[@]}" -ppn 1 -n 3 ./jobs bytes)" "$(correct 3)" "every byte between hosts"
same "$(timeout 60 "${hydra[@]}" -n 6 ./jobs bytes)" "$(correct 6)" "every byte between and within hosts"
timeout 60 "${hydra[@]}" -n 6 ./ring -laps -1 >errors 2>&1 || status=$?
same "$status" 2 "the exit status after a mistake in the flags"
printed '^-laps is -1: it cannot be negative$'
"${hydra[@]}" -n 6 ./jobs endless >up 2>errors &
up 6
pkill -KILL -f -n "$endless"
# 255: the daemon of another host has lost its connection before mpiexec notices the death.
over "a rank dies" 9 137 255
lines up 1 'PID [0-9]* RUNNING AT n[1-3]$' || fail "$(cat up)"
"${hydra[@]}" -n 6 ./jobs endless >up 2>errors &
up 6
kill -INT $!
over "Ctrl-C" 2 130 255

# MPICH's ranks find each other through mpirun-go's daemons. UCX detects that the three hosts are
# one machine, unless UCX_TLS excludes shared memory. Over TCP MPI_Finalize often does not return,
# under Hydra too.
mpich_job() {
    timeout 60 ./mpirun-go -H n1:2,n2:2,n3:2 -n 6 --oversubscribe -x UCX_TLS=tcp,self ./mpich "$@"
}
status=0
mpich_job leave >up 2>errors || status=$?
same "$status" 3 "mpirun-go: the exit status of MPICH's program"
same "$(sort up)" "$(for rank in 0 1 2 3 4 5; do echo "rank $rank of 6 ok, 2 on its node"; done)" \
    "mpirun-go: MPICH's program on three hosts"
status=0
mpich_job die >up 2>errors || status=$?
same "$status" 5 "mpirun-go: a rank of MPICH's program dies"
printed '^mpirun-go: rank 1 (pid [0-9]*) on n1 exited with status 5'
echo "works with MPICH $(mpiexec.hydra -info | awk '/Version:/ {print $2; exit}')"

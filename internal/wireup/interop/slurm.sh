#!/usr/bin/env bash
# Checks our client under Slurm's pmi2 plug-in. The script starts a cluster of two nodes on this
# machine, and stops it at the end. Needs root, Go, Debian's slurmctld, slurmd, slurm-client and
# munge, and the ports 6817, 17001 and 17002.
# Prints one line a check. The exit status is 1 if a check failed.
# Usage: internal/wireup/interop/slurm.sh
set -u
cd "$(dirname "$(readlink -f "$0")")" || exit 2
. ./check.sh

for tool in go slurmctld slurmd srun munged; do
    command -v "$tool" >/dev/null || { echo "$tool is missing (Debian: slurmctld slurmd slurm-client munge)"; exit 1; }
done
go build -o "$work/ranks" ./ranks || { echo "build failed"; exit 1; }
chmod 755 "$work"
ranks=$work/ranks

# stop ends the daemons that this script has started, by process ID.
stop() {
    local file pid
    for file in "$work"/*.pid; do
        pid=$(cat "$file" 2>/dev/null) && kill "$pid" 2>/dev/null &&
            timeout 10 tail --pid="$pid" -f /dev/null
    done
    rm -rf "$work"
}
trap stop EXIT

# eventually COMMAND…: repeats the command until it succeeds, for at most half a minute.
eventually() {
    local tries
    for ((tries = 0; tries < 150; tries++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    echo "gave up on: $*"
    exit 1
}

mkdir "$work/spool.n1" "$work/spool.n2" "$work/state"
cat >"$work/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
CryptoType=crypto/munge
MpiDefault=pmi2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPidFile=$work/ctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmdSpoolDir=$work/spool.%n
StateSaveLocation=$work/state
SlurmctldLogFile=$work/ctld.log
SlurmdLogFile=$work/slurmd.%n.log
SchedulerType=sched/builtin
SelectType=select/cons_tres
SlurmctldPort=6817
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=17001 CPUs=$(nproc)
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=17002 CPUs=$(nproc)
PartitionName=p Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$work/slurm.conf

if ! munge -n >/dev/null 2>&1; then
    install -d -o munge -g munge /run/munge
    su -s /bin/sh munge -c /usr/sbin/munged
    eventually munge -n
    cp /run/munge/munged.pid "$work/munged.pid"
fi
slurmctld && slurmd -N n1 && slurmd -N n2 || { echo "Slurm does not start"; exit 1; }
eventually sh -c 'sinfo -h -o %t | grep -x idle'

echo "our client under $(srun --version)"
check "one rank"               0 1 'rank 0 of 1 ok'        srun --mpi=pmi2 -O -N 1 -n 1 "$ranks"
check "two nodes in blocks"    0 4 'nodes \[0 0 1 1\]'     srun --mpi=pmi2 -O -N 2 -n 4 "$ranks"
check "two nodes, round robin" 0 4 'nodes \[0 1 0 1\]'     srun --mpi=pmi2 -O -N 2 -n 4 -m cyclic "$ranks"
check "uneven nodes"           0 5 'of 5 ok'               srun --mpi=pmi2 -O -N 2 -n 5 "$ranks"
check "srun without pmi2"      - 2 'task [01] of 2 of Slurm' srun --mpi=none -O -N 1 -n 2 "$ranks"
check "one task without pmi2"  3 1 'no launcher'           srun --mpi=none -O -N 1 -n 1 "$ranks"
check "a shell of salloc"      3 1 'no launcher'           salloc -O -N 1 -n 2 "$ranks"
# Slurm kills the step and drops the code, so srun's exit status varies.
check "abort ends the job"   any 1 'Job step aborted'      srun --mpi=pmi2 -O -N 2 -n 3 "$ranks" abort
check "death ends the job"     - 1 'exit code 5'           srun --mpi=pmi2 -O -K -N 2 -n 3 "$ranks" die

summary

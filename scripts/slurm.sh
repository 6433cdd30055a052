#!/usr/bin/env bash
# Runs mpigo's programs under Slurm: srun --mpi=pmi2 starts the ranks, or mpirun-go within an
# allocation. The controller and the two nodes are network namespaces of this machine, which are
# removed when the script ends. Needs root, iproute2, and Debian's slurmctld, slurmd, slurm-client
# and munge.
# Usage: slurm.sh [COMMAND…]
# With COMMAND it runs the command on the controller's host instead.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
isolate "$@"
hosts 2
chmod 755 "$out"

mkdir -m 755 "$out/munge" "$out/state" "$out/spool.n1" "$out/spool.n2"
install -m 600 /dev/null "$out/munge/key"
head -c 64 /dev/urandom >"$out/munge/key"
munged --foreground --socket="$out/munge/socket" --key-file="$out/munge/key" --pid-file="$out/munge/pid" \
    --seed-file="$out/munge/seed" --log-file="$out/munge/log" >"$out/munge/output" 2>&1 &
eventually munge --socket="$out/munge/socket" -n || { cat "$out/munge/"{output,log}; exit 1; }
cat >"$out/slurm.conf" <<CONF
ClusterName=mpigo
SlurmctldHost=front
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$out/munge/socket
MpiDefault=none
# On a busy machine an answer takes longer than the default of 10 s. Slurm repeats a request whose
# answer is late only after a minute, even the request to end a job.
MessageTimeout=60
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=2
SlurmctldPidFile=$out/slurmctld.pid
SlurmdPidFile=$out/slurmd.%n.pid
SlurmdSpoolDir=$out/spool.%n
StateSaveLocation=$out/state
SlurmdParameters=config_overrides
NodeName=n[1-2] CPUs=4
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$out/slurm.conf
slurmctld -D >"$out/slurmctld.log" 2>&1 &
mkdir "$out/cgroup"
mount --rbind /sys/fs/cgroup "$out/cgroup"
for n in n1 n2; do
    # slurmd does not start without cgroups, although it is not configured to use any.
    on "$n" sh -c 'mount --rbind "$1" /sys/fs/cgroup && exec slurmd -D -N "$0"' "$n" "$out/cgroup" \
        >"$out/slurmd.$n.log" 2>&1 &
done
ready() { [ "$(sinfo -h -o '%t %D')" = "idle 2" ]; }
eventually ready || { tail "$out/"slurm*.log; exit 1; }

if [ $# -gt 0 ]; then
    "$@"
    exit
fi

cd "$root"
go build -o "$out/" ./mpirun-go ./examples/ring ./scripts/jobs ./scripts/hangs ./internal/wireup/interop/ranks
cd "$out"

# Ranks as Slurm's tasks.
pmi() { timeout 60 srun --mpi=pmi2 -N 2 "$@"; }
want=$(timeout 60 ./mpirun-go -n 4 --oversubscribe ./ring)
same "$(MPIGO_VERBOSE=true pmi -m cyclic --ntasks-per-node 2 ./ring 2>errors)" "$want" "srun: a ring on two nodes"
printed '^mpigo: rank 0: tcp(eth0 10\.77\.[0-9.]*) to 1,3; sm to 2$'
same "$(MPIGO_BTL=self,tcp pmi --ntasks-per-node 2 ./ring)" "$want" "srun: a ring over TCP"
same "$(pmi --ntasks-per-node 2 ./jobs bytes)" "$(correct 4)" "srun: every byte"
same "$(pmi -O -n 16 ./ring | wc -l)" 4 "srun: more ranks than processors"
status=0
pmi --ntasks-per-node 2 ./ring -laps -1 2>errors || status=$?
[ "$status" != 0 ] || fail "srun: a rank's error: exit status 0"
printed '^-laps is -1: it cannot be negative$'
echo "ok: srun: a rank's error, exit status $status"
status=0
timeout 60 srun --mpi=none -N 2 -n 2 ./ring 2>errors || status=$?
same "$status" 1 "srun without pmi2: the exit status"
printed 'task [01] of 2 of Slurm.s srun, which ran without --mpi=pmi2' 2

# wireup's client alone.
ok() { grep -c "ok, nodes \[$1\]"; }
same "$(pmi --ntasks-per-node 2 ./ranks | ok '0 0 1 1')" 4 "srun: two nodes in blocks"
same "$(pmi --ntasks-per-node 2 -m cyclic ./ranks | ok '0 1 0 1')" 4 "srun: two nodes, round robin"
same "$(pmi -O -n 5 ./ranks | grep -c "of 5 ok, nodes")" 5 "srun: uneven nodes"
same "$(timeout 60 srun --mpi=none -N 1 -n 1 ./ranks)" "no launcher" "srun: one task without pmi2"
same "$(timeout 60 salloc -Q -N 1 -n 2 ./ranks)" "no launcher" "a shell of salloc"
# Slurm kills the step and drops the code, so the exit status of an abort varies.
pmi -O -n 3 ./ranks abort >up 2>errors || true
printed 'Job step aborted'
pmi -O -K -n 3 ./ranks die >up 2>errors && fail "srun: a rank exits before a barrier: exit status 0"
printed 'exit code 5'
echo "ok: srun: an abort, an exit before a barrier"

# A job that hangs. Rank 0 listens on a socket, which all hosts of this machine see.
export XDG_RUNTIME_DIR=$out/sockets
mkdir -m 700 sockets
MPIGO_PROFILE=$out/hung MPIGO_TRACE=$out/hung srun --mpi=pmi2 -J hung -N 2 --ntasks-per-node 2 \
    ./hangs missing-rank >up 2>errors &
eventually compgen -G "$out/sockets/mpigo/*.sock" || fail "srun: rank 0 has no socket: $(cat errors)"
diagnosed() {
    ./mpirun-go diagnose "$(basename sockets/mpigo/*.sock .sock)" >report 2>&1 &&
        grep -q '^ *\(hang:\|\) *rank 3 has not called barrier in world: ranks 0-2 wait for it' report
}
eventually diagnosed || fail "srun: mpirun-go diagnose: $(cat report)"
grep -q "^mpirun-go: trace until now: $out/hung/trace.html$" report || fail "srun: the trace until now: $(cat report)"
echo "ok: srun: mpirun-go diagnose"
./mpirun-go top "$(basename sockets/mpigo/*.sock .sock)" >report
lines report 4 'hangcases.go:' && lines report 1 '4 ranks, 2 hosts' || fail "srun: mpirun-go top: $(cat report)"
echo "ok: srun: mpirun-go top"
scancel -n hung
wait $! || true
merged() { ./mpirun-go merge "$@" 2>&1; }
same "$(merged hung)" "mpirun-go: profile: hung/profile.html
mpirun-go: trace: hung/trace.html" "scancel: profile and trace of a job that hangs"

# The records of ranks, and files of two jobs.
for dir in one two; do
    MPIGO_PROFILE=$out/$dir MPIGO_TRACE=$out/$dir pmi --ntasks-per-node 2 ./ring >up
    same "$(merged $dir)" "mpirun-go: profile: $dir/profile.html
mpirun-go: trace: $dir/trace.html" "srun: profile and trace"
done
grep -q '^@ Task       : 3 n2, ' one/profile.txt || fail "srun: the profile: $(cat one/profile.txt)"
cp one/profile.3.json two/
merged two >errors && fail "srun: a merge of two jobs: exit status 0"
printed 'two/profile.0.json is of job "[0-9.]*-[0-9a-f]*" with 4 ranks, and two/profile.3.json of another job: '
echo "ok: srun: files of two jobs are told apart"

srun --mpi=pmi2 -N 2 --ntasks-per-node 2 ./jobs endless >up 2>errors &
up 4
pkill -KILL -f -n "$endless"
over "srun: a rank dies" 137 143
printed '^srun: error: n[12]: task.* Killed$' "$(grep -c 'task.* Killed$' errors)"
srun --mpi=pmi2 -J away -N 2 --ntasks-per-node 2 ./jobs endless >up 2>errors &
up 4
scancel -n away
over "scancel" 143
printed 'STEP .* CANCELLED'
eventually ready || fail "a job is left: $(squeue)"

# mpirun-go in an allocation: hosts and slots are Slurm's, and srun is the agent.
within() { timeout 60 salloc -Q -N 2 --ntasks-per-node 2 ./mpirun-go "$@"; }
same "$(within -n 4 --map-by node -v ./ring 2>errors)" "$want" "salloc: a ring on two nodes"
printed '^mpigo: rank 0: .*tcp(eth0 10\.77\.[0-9.]*) to '
printed '^mpigo: rank [0-3]: .*tcp(eth0 10\.77\.[0-9.]*) to ' 4 # a line of each rank
same "$(within -n 4 hostname | sort -u | xargs)" "n1 n2" "salloc: both nodes have ranks"
same "$(within -n 4 ./jobs bytes)" "$(correct 4)" "salloc: every byte"
within -n 4 --profile allocated --trace allocated ./ring >up 2>errors
printed "^mpirun-go: profile: $out/allocated/profile.html$"
printed "^mpirun-go: trace: $out/allocated/trace.html$"
echo "ok: salloc: profile and trace"
status=0
within -n 5 ./ring >up 2>errors || status=$?
same "$status $(cat up)" "2 " "salloc: more ranks than slots are refused"
printed '^mpirun-go: 5 ranks exceed the 4 slots of the Slurm allocation (--oversubscribe starts them anyway)$'
printed '' 1
same "$(within -n 8 --oversubscribe ./jobs bytes)" "$(correct 8)" "salloc: more ranks than slots"
status=0
# shellcheck disable=SC2016 # for the rank's shell
within -n 4 sh -c '[ $MPIGO_RANK = 3 ] && exit 7; sleep 1000' 2>errors || status=$?
same "$status" 7 "salloc: the exit status of a failing rank"
printed '^mpirun-go: rank 3 (pid [0-9]*) on n2 exited with status 7; the job.s other 3 ranks were ended$'
salloc -Q -N 2 --ntasks-per-node 2 ./mpirun-go -n 4 ./jobs endless >up 2>errors &
up 4
pkill -KILL -f -n "$endless"
over "salloc: a rank dies" 137
printed '^mpirun-go: rank [0-3] (pid [0-9]*) on n[12] was killed by signal 9 (killed); '
salloc -Q -N 2 --ntasks-per-node 2 ./mpirun-go -n 4 ./jobs endless >up 2>errors &
up 4
pkill -INT -o -f '^./mpirun-go'
over "salloc: Ctrl-C" 130
printed '^mpirun-go: got signal 2 (interrupt); its 4 ranks were ended$'
salloc -Q -J away -N 2 --ntasks-per-node 2 ./mpirun-go -n 4 ./jobs endless >up 2>errors &
up 4
scancel -n away
over "salloc: scancel" 1
printed '^mpirun-go: host n[12] was lost.*: the agent ended with status '
eventually ready || fail "a job is left: $(squeue)"
echo "works under $(srun --version)"

#!/usr/bin/env bash
# Tests the transport over verbs on soft-RoCE, in the guest of btl/ibverbs/internal/softroce:
#   contract  the contract of a transport, on two real devices
#   jobs      jobs whose ranks are connected by verbs only, on one rail and on two, and with shared
#             receives, also with fewer than the peers may send messages
#   figures   latency and bandwidth, beside Debian's benchmarks in the same boot, without limits
# Usage: verbs-jobs.sh [CHECK…]
# By default all checks.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
job=$out/job
mkdir "$job"

# in_guest SECONDS: runs $job/main in the guest, for at most that time.
in_guest() { btl/ibverbs/internal/softroce/run -t "$1" -d "$job" 'sh ./main'; }

contract() {
    go test -c -o "$job/ibverbs.test" ./btl/ibverbs
    cat >"$job/main" <<'SH'
MPIGO_TEST_VERBS_DEVICES=rxe0,prx0 exec ./ibverbs.test -test.v -test.timeout=14m -test.run=TestDevice
SH
    if ! in_guest 900 >"$out/log" 2>&1; then
        failures "$out/log"
        return 1
    fi
    grep -cE '^ *--- PASS' "$out/log" | sed 's/$/ tests of the contract hold on rxe/'
}

programs() {
    go build -o "$job/" ./mpirun-go ./examples/ring ./examples/heat2d ./bench
    # An emulated machine is slow: the devices wait longer for an answer than they would on a wire.
    cat >"$job/lib" <<'SH'
run() { timeout 200 ./mpirun-go --oversubscribe --btl self,ibverbs --set ibverbs.timeout=18 "$@"; }
one='rxe0|prx0' two='rxe0|prx0,rxe1|prx1'
SH
}

# jobs: with two and four ranks the programs must print the same as over shared memory.
jobs() {
    programs
    cat >"$job/main" <<'SH'
. ./lib
set -e
for n in 2 4; do
    for program in ./ring './heat2d -size 90x180 -steps 200'; do
        timeout 100 ./mpirun-go --oversubscribe -n $n $program >want
        for rails in "$one" "$two"; do
            run -n $n --set "ibverbs.devices=$rails" $program >got
            cmp want got
            echo "$program, $n ranks, $rails: as over shared memory"
        done
        for depth in 4096 13; do
            run -n $n --set "ibverbs.devices=$two" --set ibverbs.srq=on --set ibverbs.srq.depth=$depth $program >got
            cmp want got
            echo "$program, $n ranks, $two, $depth shared receives: as over shared memory"
        done
    done
done
# refused MESSAGE FLAG…: the job must fail with that message.
refused() {
    want=$1; shift
    if run "$@" ${program:-./ring} >got 2>&1; then echo "no error: $*"; exit 1; fi
    grep -q "$want" got || { echo "another message, with $*:"; cat got; exit 1; }
    echo "refused: $(grep -m1 "$want" got)"
}
refused 'no such RDMA device' -n 2 --set ibverbs.devices=nowhere --set pml.grace=2s
refused 'it has no port 7' -n 2 --set ibverbs.devices=rxe0:7
refused 'nothing in entry 99' -n 2 --set ibverbs.devices=rxe0 --set ibverbs.gid=99
ip link set r1 down
refused 'port 1 is DOWN' -n 2 --set ibverbs.devices=rxe1 --set pml.grace=2s
ip link set r1 up
# Rank 1 can open its device but cannot lock the memory of a connection. Rank 0, which asks for the
# connection, gets the reason.
cat >short <<'RANK'
[ "$PMI_RANK" = 1 ] || exec ./ring
ulimit -l 2600
MPIGO_PML_GRACE=60s exec unshare -U -r ./ring
RANK
program='sh ./short' refused 'rank 0: .* the peer cannot make the connection: ibv_reg_mr: ' -n 2 --set "ibverbs.devices=$one" --set pml.grace=2s
# With devices=all, a port that is up but unusable is left out.
./mpirun-go --oversubscribe -n 2 ./ring >want
ip address del 10.10.1.1/24 dev r1
run -n 2 --set ibverbs.devices=all --set ibverbs.gid=1 ./ring >got 2>errors
ip address add 10.10.1.1/24 dev r1
cmp want got
[ "$(grep -c 'warning: left out: rail ibverbs:rxe1/1: ' errors)" = 1 ] || { echo "the warning is missing:"; cat errors; exit 1; }
grep 'warning: left out' errors
SH
    in_guest 600
}

figures() {
    programs
    cat >"$job/main" <<'SH'
. ./lib
# perftest PROGRAM SIZE N [RAIL]: the line of results between the ends of a rail, by default 0.
perftest() {
    $1 -d rxe${4:-0} -p 1851${4:-0} -x 1 -s $2 -n $3 >server 2>&1 &
    for i in $(seq 100); do netstat -tln | grep -q ":1851${4:-0} " && break; sleep 0.1; done
    $1 -d prx${4:-0} -p 1851${4:-0} -x 1 -s $2 -n $3 10.10.${4:-0}.1 2>/dev/null | grep "^ *$2 "
    wait $!
}
lat() { perftest ib_send_lat 8 5000 | awk '{print $6}'; }
# mpigo RAILS BENCH SIZE FLAG…: a rank on each processor.
mpigo() {
    rails=$1 bench=$2 size=$3
    shift 3
    run -n 2 --bind-to core --set "ibverbs.devices=$rails" \
        ./bench $bench -m "$size:$size" "$@" | awk '/^[0-9]/ {print $2}'
}
bandwidth() { perftest "$1" 1048576 50 "${2:-0}" | awk '{print $4}'; }
# The runs alternate, so that changes of the machine affect all alike; then the median counts.
median() { sort -n | awk '{v[NR]=$1} END {print v[int((NR+1)/2)]}'; }
for i in 1 2 3; do
    lat >>lat.perftest; mpigo "$one" latency 8 -i 5000 -x 1000 >>lat.mpigo
done
for i in 1 2 3; do
    bandwidth ib_read_bw >>bw.read; bandwidth ib_write_bw >>bw.write
    (bandwidth ib_write_bw 0 >both.0 & bandwidth ib_write_bw 1 >both.1; wait)
    cat both.0 both.1 | awk '{s+=$1} END {print s}' >>bw.both
    mpigo "$one" bw 1048576 -i 2 -x 1 >>bw.one; mpigo "$two" bw 1048576 -i 2 -x 1 >>bw.two
done
for f in lat.perftest lat.mpigo bw.read bw.write bw.both bw.one bw.two; do echo "$f $(median <$f) of $(echo $(cat $f))"; done
SH
    in_guest 900 | tee "$out/figures"
    # If a figure of mpigo is missing, its job has failed.
    awk '/^(lat|bw)[.]/ { f[$1] = $2 } END {
        for (k in f) if (f[k] !~ /^[0-9.]+$/) { print "no figure: " k; failed = failed || k ~ /mpigo|one|two/; missing = 1 }
        if (missing) exit failed
        printf "8 B latency: %.0f us, ib_send_lat %.0f: ratio %.2f\n", f["lat.mpigo"], f["lat.perftest"], f["lat.mpigo"] / f["lat.perftest"]
        best = f["bw.read"] > f["bw.write"] ? f["bw.read"] : f["bw.write"]
        best *= 1.048576 # perftest prints MiB/s
        printf "1 MiB bandwidth: %.1f MB/s, best of ib_read_bw and ib_write_bw %.1f: ratio %.2f\n", f["bw.one"], best, f["bw.one"] / best
        printf "two rails: %.2f of one; ib_write_bw on both at once: %.2f of one\n", f["bw.two"] / f["bw.one"], f["bw.both"] / f["bw.write"]
    }' "$out/figures"
}

checks=("$@")
[ ${#checks[@]} -gt 0 ] || checks=(contract jobs figures)
for check in "${checks[@]}"; do
    case $check in contract | jobs | figures) ;; *) help >&2; exit 2 ;; esac
    "$check"
done

#!/usr/bin/env bash
# Boots the guest of btl/ibverbs/internal/softroce, which has RDMA devices without an adapter, and
# checks commands that run in it. As root it installs the packages that are missing. The first run
# builds the guest, which needs the network.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
guest=btl/ibverbs/internal/softroce
scratch

# status WANT OPTION… COMMAND: runs COMMAND in the guest. It must end with that exit status.
status() {
    local want=$1 got=0
    shift
    "$guest/run" "$@" || got=$?
    [ "$got" = "$want" ] || fail "exit status $got, not $want"
}

# compiler: installs the packages that programs with verbs need to build.
compiler() {
    command -v gcc >/dev/null && return
    [ "$(id -u)" -eq 0 ] || fail "gcc is missing: install it, or run this as root"
    apt_install gcc libc6-dev
}

packages() { "$guest/install" && compiler && "$guest/image"; }

# devices: two rails with two devices each, and every device is up. The exit status of the command
# in the guest is that of the run.
devices() {
    status 7 'for d in rxe0 prx0 rxe1 prx1; do ibv_devinfo -d $d; done; exit 7' | tee "$out/devices"
    [ "$(grep -c 'state:.*PORT_ACTIVE' "$out/devices")" = 4 ] || fail "the guest has not four active devices"
}

# perftest: Debian's benchmarks between the two ends of a rail.
perftest() {
    cat >"$out/job/perftest" <<'SH'
for p in ib_send_lat ib_read_bw; do
    $p -d rxe0 -x 1 -n 200 >server 2>&1 &
    # Wait until the server listens.
    for i in $(seq 100); do netstat -tln | grep -q ':18515 ' && break; sleep 0.1; done
    $p -d prx0 -x 1 -n 200 10.10.0.1 && wait $! || { cat server; exit 1; }
done
SH
    status 0 -d "$out/job" 'sh perftest' | tee "$out/perftest"
    [ "$(grep -cE '^ *[0-9]+ +200 ' "$out/perftest")" = 2 ] || fail "perftest has not printed two results"
}

time_limit() { status 124 -t 3 'sleep 1000'; }

mkdir "$out/job"
for check in packages devices perftest time_limit; do
    "$check"
    echo "ok: $check"
done
echo "soft-RoCE: four devices, verbs between them, exit statuses and the time limit"

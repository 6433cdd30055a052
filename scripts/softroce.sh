#!/usr/bin/env bash
# Verbs without a card: boots the guest of btl/ibverbs/internal/softroce, and checks what is run in it. As root it
# installs what is missing; the first time it builds the guest, which needs the network.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
guest=btl/ibverbs/internal/softroce
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

fail() { echo "FAIL: $*"; exit 1; }

# status WANTED OPTION… COMMAND: a run must end with that exit status.
status() {
    local wanted=$1 got=0
    shift
    "$guest/run" "$@" || got=$?
    [ "$got" = "$wanted" ] || fail "exit status $got, not $wanted"
}

# headers are what programs with verbs are built with.
headers() {
    [ -e /usr/include/infiniband/verbs.h ] && command -v gcc >/dev/null && return
    [ "$(id -u)" -eq 0 ] || fail "missing here; as root: apt-get install --no-install-recommends gcc libc6-dev libibverbs-dev"
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends gcc libc6-dev libibverbs-dev
}

packages() { "$guest/install" && headers && "$guest/image"; }

# Two rails of two devices, every one of them up. A command that fails says so with its own status.
devices() {
    status 7 'for d in rxe0 prx0 rxe1 prx1; do ibv_devinfo -d $d; done; exit 7' | tee "$out/devices"
    [ "$(grep -c 'state:.*PORT_ACTIVE' "$out/devices")" = 4 ] || fail "not four active devices"
}

# Debian's benchmarks between the two ends of a rail.
perftest() {
    cat >"$out/job/perftest" <<'SH'
for p in ib_send_lat ib_read_bw; do
    $p -d rxe0 -x 1 -n 200 >server 2>&1 &
    # The server listens when it has something to say.
    for i in $(seq 100); do netstat -tln | grep -q ':18515 ' && break; sleep 0.1; done
    $p -d prx0 -x 1 -n 200 10.10.0.1 && wait $! || { cat server; exit 1; }
done
SH
    status 0 -d "$out/job" 'sh perftest' | tee "$out/perftest"
    [ "$(grep -cE '^ *[0-9]+ +200 ' "$out/perftest")" = 2 ] || fail "not two results"
}

time_limit() { status 124 -t 3 'sleep 1000'; }

mkdir "$out/job"
for check in packages devices perftest time_limit; do
    "$check"
    echo "ok: $check"
done
echo "soft-RoCE: four devices, verbs between them, statuses and the time limit"

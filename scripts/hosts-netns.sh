#!/usr/bin/env bash
# Makes N hosts of this machine: network namespaces n1 to nN on a bridge, each with its own address, host name and
# sshd and home directory, with keys and configuration that nobody else uses; and takes all of it away again.
# Usage: hosts-netns.sh N [COMMAND…]   runs COMMAND with AGENT in its environment, for mpirun-go --agent "$AGENT" -H n1,n2;
# without COMMAND: a few jobs, which have to go well. Needs root, openssh-server and iproute2.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
hosts=${1:?usage: hosts-netns.sh N [COMMAND…]}
shift
net=mpg$$ out=$(mktemp -d) pids=()

clean() {
    kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    for i in $(seq "$hosts"); do
        ip netns pids "$net-n$i" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
        ip netns del "$net-n$i" 2>/dev/null || true
    done
    ip link del "$net" 2>/dev/null || true
    rm -rf "$out"
}
trap clean EXIT

mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f "$out/key"
ssh-keygen -q -t ed25519 -N '' -f "$out/hostkey"
cp "$out/key.pub" "$out/authorized"
ip link add "$net" type bridge
ip link set "$net" up
ip addr add 10.77.255.254/16 dev "$net"
for i in $(seq "$hosts"); do
    ns=$net-n$i address=10.77.$((i / 200)).$((i % 200 + 1))
    mkdir "$out/home.$i"
    ip netns add "$ns"
    ip link add "$net.$i" type veth peer name eth0 netns "$ns"
    ip link set "$net.$i" master "$net" up
    ip -n "$ns" addr add "$address/16" dev eth0
    ip -n "$ns" link set eth0 up
    ip -n "$ns" link set lo up
    cat >"$out/sshd.$i" <<CONF
ListenAddress $address
Port 22
HostKey $out/hostkey
AuthorizedKeysFile $out/authorized
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PidFile none
SetEnv HOME=$out/home.$i XDG_CACHE_HOME=$out/home.$i/.cache
CONF
    ip netns exec "$ns" unshare --uts sh -c "hostname n$i; exec /usr/sbin/sshd -D -e -f $out/sshd.$i" 2>"$out/log.$i" &
    pids+=($!)
    echo "n$i $(cut -d' ' -f1,2 "$out/hostkey.pub")" >>"$out/known"
    printf 'Host n%d\n    HostName %s\n    HostKeyAlias n%d\n' "$i" "$address" "$i" >>"$out/config"
done
cat >>"$out/config" <<CONF
Host *
    IdentityFile $out/key
    IdentitiesOnly yes
    UserKnownHostsFile $out/known
    BatchMode yes
CONF
export AGENT="ssh -F $out/config"
for i in $(seq "$hosts"); do
    for try in $(seq 100); do
        $AGENT "n$i" true 2>"$out/err" && break
        [ "$try" = 100 ] && { cat "$out/err" "$out/log.$i"; exit 1; }
        sleep 0.05
    done
done

if [ $# -gt 0 ]; then
    "$@"
    exit
fi

go build -o "$out/" ./mpirun-go ./examples/ring
list=$(seq -s, -f n%g:2 "$hosts") ranks=$((2 * hosts))
run() { timeout 60 "$out/mpirun-go" --agent "$AGENT" -H "$list" "$@"; }
same() { [ "$1" = "$2" ] || { echo "FAIL: $3: $1, and not $2"; exit 1; }; echo "ok: $3"; }
same "$(run -n "$ranks" --oversubscribe hostname | sort -u | wc -l)" "$hosts" "ranks on $hosts hosts"
same "$(run -n "$ranks" --oversubscribe --map-by node "$out/ring" | tail -n 1)" "$(timeout 60 "$out/mpirun-go" -n "$ranks" --oversubscribe "$out/ring" | tail -n 1)" "a ring"
same "$(run -n "$ranks" --oversubscribe --map-by node --btl self,tcp -v "$out/ring" 2>"$out/said" | tail -n 1)" "$(timeout 60 "$out/mpirun-go" -n "$ranks" --oversubscribe "$out/ring" | tail -n 1)" "a ring over TCP"
grep -q '^mpigo: rank 0: tcp(eth0) to ' "$out/said" || { cat "$out/said"; exit 1; }
status=0
# shellcheck disable=SC2016 # for the rank's shell
run -n "$ranks" --oversubscribe sh -c '[ $MPIGO_RANK = 1 ] && exit 7; sleep 1000' 2>"$out/said" || status=$?
same "$status" 7 "the status of a failing rank"
grep -q 'rank 1 (pid [0-9]*) on n1 exited with status 7' "$out/said" || { cat "$out/said"; exit 1; }
"$out/mpirun-go" --agent "$AGENT" -H "$list" -n "$ranks" --oversubscribe sh -c "echo up; exec sleep 1000.$$" >"$out/up" 2>"$out/said" &
launcher=$!
for _ in $(seq 200); do [ "$(wc -l <"$out/up")" = "$ranks" ] && break; sleep 0.05; done
kill -KILL "$launcher"
left=1
for _ in $(seq 100); do
    left=$(pgrep -fc "^sleep 1000.$$\$" || true)
    [ "$left" = 0 ] && break
    sleep 0.1
done
same "$left" 0 "nothing is left of a launcher that was killed"

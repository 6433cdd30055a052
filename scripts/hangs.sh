#!/usr/bin/env bash
# Runs programs that hang, one for each kind of cause (scripts/hangs), as jobs with 2, 8 and 64
# ranks on one machine, and some of them with 6 ranks on three hosts, which are network namespaces.
# Each job must get a report by --hang-after whose first three lines name the cause. mpirun-go
# diagnose must then print the same cause. With MPICH, two cases also run under its Hydra on the
# three hosts, where rank 0 answers diagnose.
# Usage: hangs.sh [CASE…]
# By default all cases run. Needs root, openssh-server and iproute2. Takes about two minutes.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
case "${1:-}" in -h | --help) help; exit ;; esac
isolate "$@"
cd "$root"
go build -o "$out/" ./mpirun-go ./scripts/hangs
cases=("$@")
[ ${#cases[@]} -gt 0 ] || mapfile -t cases < <("$out/hangs" 2>&1 | sed -n 's/^ *\([a-z-]*\)$/\1/p')

# explains TEXT WANT: whether the first three lines of the last report in the file match each
# expression in the other file.
explains() {
    local want
    awk '/^hang: / { n = 0 } n < 3 { line[n++] = $0 } END { for (i = 0; i < n; i++) print line[i] }' "$1" >"$1.first"
    while read -r want; do
        grep -qP -e "$want" "$1.first" || return
    done <"$2"
}

# within SECONDS COMMAND…: repeats the command until it succeeds.
within() {
    local limit=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $limit ] || return
        sleep 0.1
    done
}

# hang NAME CASE RANKS FLAG…: runs a case, and checks the reports of the launcher and of diagnose.
hang() {
    local dir=$out/$1 case=$2 ranks=$3 launcher begin=$SECONDS
    shift 3
    mkdir "$dir"
    : >"$dir/err"
    "$out/hangs" want "$case" "$ranks" >"$dir/want"
    "$out/mpirun-go" --hang-after 1s -n "$ranks" --oversubscribe "$@" "$out/hangs" "$case" >"$dir/out" 2>"$dir/err" &
    launcher=$!
    if [ "$case" = dead-rail ]; then
        within 60 grep -q 'is ready' "$dir/out" && cut_rail
    fi
    # A report that came while the ranks were still starting is followed by another one.
    within 60 explains "$dir/err" "$dir/want" || {
        echo "FAIL: $dir: the report does not say: $(cat "$dir/want")"
        cat "$dir/err"
        kill -KILL "$launcher"
        return 1
    }
    "$out/mpirun-go" diagnose "$launcher" >"$dir/diagnose" && explains "$dir/diagnose" "$dir/want" || {
        echo "FAIL: $dir: diagnose does not say: $(cat "$dir/want")"
        cat "$dir/diagnose"
        kill -KILL "$launcher"
        return 1
    }
    kill -TERM "$launcher"
    wait "$launcher" && return 1
    echo "ok: ${dir##*/} after $((SECONDS - begin)) s: $(head -n 1 "$dir/err.first" | cut -c1-150)"
}

# all: waits for the jobs in the background, and fails if one has failed.
all() {
    local pid status=0
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
    pids=()
    [ $status = 0 ] || exit 1
}
pids=()

for ranks in 2 8 64; do
    for case in "${cases[@]}"; do
        [ "$case" = dead-rail ] && continue
        hang "$case-$ranks" "$case" "$ranks" &
        pids+=($!)
        # Many ranks that start at once take long.
        [ "$ranks" != 64 ] || [ ${#pids[@]} -lt 4 ] || all
    done
    all
    # TCP over the loopback interface, which goes down.
    case " ${cases[*]} " in *" dead-rail "*)
        cut_rail() { ip link set lo down; }
        hang "dead-rail-$ranks" dead-rail "$ranks" --btl self,tcp --hang-after 4s --set tcp.include=lo --set tcp.deadline=1s --set pml.grace=60s &
        pids+=($!)
        all
        ip link set lo up
        ;;
    esac
done

hosts 3
sshds 3
for case in "${cases[@]}"; do
    case "$case" in
        cyclic-recv | missing-rank | stopped | endless-loop)
            hang "$case-hosts" "$case" 6 -H n1:2,n2:2,n3:2 &
            pids+=($!)
            ;;
    esac
done
all
case " ${cases[*]} " in *" dead-rail "*)
    # A cable between the two hosts, besides the network that ssh uses.
    ip link add r0 netns n1 type veth peer name r0 netns n2
    for i in 1 2; do
        ip -n "n$i" addr add "10.78.0.$i/24" dev r0
        ip -n "n$i" link set r0 up
    done
    cut_rail() { ip -n n2 link set r0 down; }
    hang dead-rail-hosts dead-rail 2 -H n1:1,n2:1 --btl self,tcp --hang-after 4s --set tcp.include=r0 --set tcp.deadline=1s --set pml.grace=60s &
    pids+=($!)
    all
    ;;
esac

# hydra CASE: runs a case with 6 ranks on the hosts under Hydra, and checks the report of diagnose.
hydra() {
    local dir=$out/$1-hydra launcher name
    mkdir -m 700 "$dir"
    "$out/hangs" want "$1" 6 >"$dir/want"
    XDG_RUNTIME_DIR=$dir mpiexec.hydra -f "$out/hostfile" -launcher ssh -iface bridge -n 6 "$out/hangs" "$1" >"$dir/out" 2>&1 &
    launcher=$!
    within 60 compgen -G "$dir/mpigo/*.sock" >/dev/null || fail "$1: rank 0 has no socket: $(cat "$dir/out")"
    name=$(basename "$dir"/mpigo/*.sock .sock)
    diagnosed() {
        XDG_RUNTIME_DIR=$dir "$out/mpirun-go" diagnose "$name" >"$dir/diagnose" 2>&1
        explains "$dir/diagnose" "$dir/want"
    }
    within 60 diagnosed || fail "$1: diagnose does not say: $(cat "$dir/want"): $(cat "$dir/diagnose")"
    kill -TERM "$launcher"
    wait "$launcher" 2>/dev/null && return 1
    echo "ok: $1 under Hydra: $(head -n 1 "$dir/diagnose.first" | cut -c1-150)"
}
if installed mpiexec.hydra; then
    printf 'n%d:2\n' 1 2 3 >"$out/hostfile"
    for case in "${cases[@]}"; do
        case "$case" in missing-rank | endless-loop) hydra "$case" ;; esac
    done
fi
echo "every report names the cause"

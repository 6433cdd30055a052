#!/usr/bin/env bash
# Makes the pictures of docs anew, from runs on this machine:
#   hang.svg     the report about a job that hangs
#   top.svg      mpirun-go top on a terminal of 100 columns, after a rank was stopped
#   profile.png  part of the page of mpirun-go --profile
#   trace.png    the page of mpirun-go --trace, a few milliseconds of it
# The first two are drawn from the text that the programs write. The others need Chromium
# (apt-get install chromium); without it they stay as they are. Look at the pictures afterwards.
# Usage: pictures.sh [DIR]
# DIR is where the pictures go; by default docs. Takes half a minute.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
case "${1:-}" in -*) help; exit ;; esac
docs=$(readlink -f "${1:-$root/docs}")
scratch
cd "$root"
go build -o "$out/" ./mpirun-go ./scripts/hangs ./scripts/jobs ./scripts/terminal ./examples/heat2d
cd "$out"
PATH=$out:$PATH
export XDG_RUNTIME_DIR=$out
unset NO_COLOR
export TERM=xterm LC_ALL=C.UTF-8

# The job ends by itself; its report comes first.
command="mpirun-go -n 4 --hang-after 2s --oversubscribe hangs unmatched-tag"
$command >report 2>&1 &
eventually grep -q '^what the ranks do' report
kill $!
wait
{
    echo "\$ $command"
    sed '/^mpirun-go: got /,$d' report
} | terminal -label "report of mpirun-go about a job that hangs" >"$docs/hang.svg"

# Two pauses of the last rank show in the rates. The last one still lasts when top ends.
mpirun-go -n 4 --oversubscribe jobs endless >up 2>errors &
job=$!
up 4
last=$(sed -n 's/rank 3 pid //p' up)
{ sleep 12; kill -STOP "$last"; sleep 4; kill -CONT "$last"; sleep 14; kill -STOP "$last"; sleep 4; echo q; sleep 1; } |
    script -qec "stty cols 100 rows 13; mpirun-go top $job" /dev/null >screen
kill -CONT "$last"
kill $job
wait
terminal -columns 100 -label "mpirun-go top: the rates of the last minute and the ranks of a job, one of them stopped" <screen >"$docs/top.svg"

browser=$(command -v chromium || command -v google-chrome || :)
[ -n "$browser" ] || { echo "no Chromium: profile.png and trace.png stay as they are"; exit; }

# page FILE[#PART] PICTURE WIDTH HEIGHT: draws a page.
page() {
    HOME=$out "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$out/browser" \
        --virtual-time-budget=3000 --window-size="$3,$4" --screenshot="$2" "file://$out/$1" 2>/dev/null
}

mpirun-go -n 4 --oversubscribe --profile records heat2d >/dev/null 2>&1
page records/profile.html "$docs/profile.png" 960 835
mpirun-go -n 4 --oversubscribe --trace records heat2d >/dev/null 2>&1
page "records/trace.html#from=300000000&to=302000000" "$docs/trace.png" 1000 260
ls -l "$docs"/{hang.svg,top.svg,profile.png,trace.png}

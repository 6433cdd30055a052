#!/usr/bin/env bash
# Checks the documentation: relative links in Markdown point to a file, and to a heading there, and
# the indented commands of the pages below work, in a fresh clone of the committed state. Commands
# in fenced blocks are not run: they need hosts, devices or a cluster.
# Usage: docs.sh [links | commands]   with no argument: both.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
pages=(docs/examples.md docs/mpirun-go.md docs/options.md docs/hosts.md docs/tunables.md docs/tcp.md
    docs/doctor.md docs/counters.md docs/top.md docs/failover.md docs/performance.md)

# anchors FILE: the anchors that GitHub makes of the headings.
anchors() {
    sed -n '/^```/,/^```/d; s/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

links() {
    local file link path anchor count=0 status=0
    while IFS=: read -r file link; do
        case $link in *://* | mailto:*) continue ;; esac
        count=$((count + 1))
        path=${link%%#*} anchor=
        [[ $link != *#* ]] || anchor=${link#*#}
        if [ -n "$path" ]; then path=$(dirname "$file")/$path; else path=$file; fi
        if [ ! -e "$path" ]; then
            echo "$file: no file for the link $link"
            status=1
        elif [ -n "$anchor" ] && ! anchors "$path" | grep -qxF -e "$anchor"; then
            echo "$file: no heading for the link $link"
            status=1
        fi
    done < <(git ls-files '*.md' | xargs grep -oE '\]\([^)]+\)' | sed 's/](\(.*\))$/\1/')
    [ $status = 0 ] && echo "$count links work"
    return $status
}

# indented FILE: the indented lines, without those of fenced blocks.
indented() { sed -n '/^```/,/^```/d; s/^    //p' "$1"; }

commands() {
    local page
    scratch
    pack_release "$(go list -m)@v0.1.0"
    export GOPATH=$out/go PATH=$out/go/bin:$PATH
    git clone -q . "$out/mpigo"
    # The README's program is in a directory beside the clone. The tests are not run here.
    mkdir "$out/hello"
    readme_program >"$out/hello/main.go"
    indented README.md | sed '/^go test /d; s/^go mod init/cd ..\/hello\n&/; s/^mpirun-go -n 4 \.$/&\ncd ..\/mpigo/' >"$out/commands"
    (cd "$out/mpigo" && bash -evx "$out/commands")
    for page in "${pages[@]}"; do
        # The example of timeout(1) ends with its status 124.
        indented "$page" | sed '/^timeout /s/$/ || test $? = 124/' >"$out/commands"
        [ -s "$out/commands" ]
        (cd "$out/mpigo" && bash -evx "$out/commands")
    done
    echo "the commands of the documentation work"
}

case ${1:-all} in
links | commands) "$1" ;;
all) links && commands ;;
*) echo "usage: docs.sh [links | commands]" >&2; exit 2 ;;
esac

#!/usr/bin/env bash
# Runs the commands of docs/examples.md and docs/mpirun-go.md (their indented lines), in a fresh clone of what is committed.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
export GOMODCACHE GOPATH
GOMODCACHE=$(go env GOMODCACHE) GOPATH=$out/go
for page in examples mpirun-go; do
    git clone -q . "$out/$page"
    # The example of timeout(1) is one that ends by it.
    sed -n 's/^    //p' "docs/$page.md" | sed '/^timeout /s/$/ || test $? = 124/' >"$out/commands"
    [ -s "$out/commands" ]
    (cd "$out/$page" && bash -evx "$out/commands")
done
echo "the commands of the documentation work"

#!/usr/bin/env bash
# Runs the main job of the README with four processes and with one: the outputs must be equal.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
scratch
go run ./mpirun-go -n 4 ./examples/wordcount >"$out/four"
go run ./mpirun-go -n 1 ./examples/wordcount >"$out/one"
cmp "$out/four" "$out/one"
[ "$(wc -l <"$out/four")" -gt 10 ]
cat "$out/four"

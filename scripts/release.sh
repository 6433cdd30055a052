#!/usr/bin/env bash
# Tries the commit at HEAD as a release: packs it as module proxies do, and does what users do with
# it, in new directories: go get, go install, go get -tool, and running the README's first program
# and a benchmark. Nothing is published. Dependencies come from Go's module cache, or from GOPROXY.
# Usage: scripts/release.sh [VERSION]
# VERSION is v0.1.0 by default.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
version=${1:-v0.1.0}
largest=3000000 # bytes of the module's zip
scratch
cd "$root"
module=$(go list -m)
pack_release "$module@$version"
cd "$out"
zip=$proxy/$module/@v/$version.zip
size=$(stat -c %s "$zip")
if [ "$size" -gt $largest ]; then
    # Each file with its size, the largest first.
    python3 -m zipfile -l "$zip" | awk 'NR > 1 { print $NF, $1 }' | sort -rn | head -20
    fail "the module's zip has $size bytes, more than $largest: move the files above out of the module"
fi
echo "ok: the module's zip has $size bytes, of at most $largest"

# A program of a new module.
mkdir user empty
cd user
readme_program >main.go
go mod init example.com/user
go get "$module@$version" # without go mod tidy
go build -o ../program .
echo "ok: go get and go build"

# mpirun-go, where there is neither a module nor, for bench, a go command.
cd ../empty
GOBIN=$out/bin go install "$module/mpirun-go@$version"
"$out/bin/mpirun-go" version | tee ../version
grep -q "^mpirun-go $version " ../version || fail "mpirun-go version does not name $version"
"$out/bin/mpirun-go" -n 2 ../program | tee ../printed
grep -qx 'the sum over 2 ranks is 3' ../printed || fail "the program does not print the sum"
PATH=/nowhere "$out/bin/mpirun-go" bench latency -m 8:8 -i 100
echo "ok: go install, a job and a benchmark"

# mpirun-go as a tool of the new module.
cd ../user
go get -tool "$module/mpirun-go@$version"
go tool mpirun-go version | tee ../version
grep -q "^mpirun-go $version " ../version || fail "go tool mpirun-go version does not name $version"
go tool mpirun-go -n 2 . | tee ../printed
grep -qx 'the sum over 2 ranks is 3' ../printed || fail "the program does not print the sum"
go mod verify
echo "ok: go get -tool and go tool mpirun-go"

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
cached=file://$(go env GOMODCACHE)/cache/download
# The new cache keeps this version out of the user's, and can be deleted.
export GOMODCACHE=$out/cache GOFLAGS="$(go env GOFLAGS) -modcacherw" GOWORK=off

# Pack: go reads the module's repository from a clone with the tag, and writes the files of a proxy.
git clone --quiet --bare . "$out/repository"
git -C "$out/repository" tag --force "$version" "$(git rev-parse HEAD)" >/dev/null
cd "$out"
proxy=$out/pack/cache/download
zip=$proxy/$module/@v/$version.zip
GOMODCACHE=$out/pack GOPRIVATE=$module GIT_CONFIG_COUNT=1 \
    GIT_CONFIG_KEY_0=url.file://$out/repository.insteadOf GIT_CONFIG_VALUE_0=https://$module \
    go mod download "$module@$version"
size=$(stat -c %s "$zip")
if [ "$size" -gt $largest ]; then
    # Each file with its size, the largest first.
    python3 -m zipfile -l "$zip" | awk 'NR > 1 { print $NF, $1 }' | sort -rn | head -20
    fail "the module's zip has $size bytes, more than $largest: move the files above out of the module"
fi
echo "ok: the module's zip has $size bytes, of at most $largest"

export GOPROXY="file://$proxy,$cached,$(go env GOPROXY)"
export GONOSUMDB="$module" # the checksum database does not know the version

# A program of a new module.
mkdir user empty
cd user
awk '/^```go$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$root/README.md" >main.go
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

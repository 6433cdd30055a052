#!/usr/bin/env bash
# Runs every line of docs/tutorial.md, see scripts/tutorial/main.go. As root, the two hosts are
# those of hosts-netns.sh, which needs openssh-server and iproute2; otherwise the commands with
# hosts are left out. Usage: tutorial.sh
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
hosts=()
if [ "$(id -u)" = 0 ]; then
    [ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$self"
    hosts=(-hosts)
fi
scratch
go build -o "$out/tutorial" ./scripts/tutorial
version=$(sed -n 's/^ *go get github.com\/mpigo\/mpigo@//p' docs/tutorial.md)
pack_release "$(go list -m)@$version"
# The hosts reach no checksum database.
GOPATH=$out/go GOBIN='' GOSUMDB=off "$out/tutorial" "${hosts[@]}"

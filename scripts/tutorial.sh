#!/usr/bin/env bash
# Runs every line of docs/tutorial.md, see scripts/tutorial/main.go. As root, the two hosts are
# those of hosts-netns.sh, which needs openssh-server and iproute2; otherwise the commands with
# hosts are left out. Usage: tutorial.sh
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$root"
if [ "$(id -u)" != 0 ]; then exec go run ./scripts/tutorial; fi
[ -n "${NETNS_HOSTS:-}" ] || exec scripts/hosts-netns.sh 2 "$self"
exec go run ./scripts/tutorial -hosts

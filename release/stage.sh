#!/usr/bin/env bash
# Copies programs, man pages, completions, units and licences into a folder, as they are under /usr.
#
# usage: stage.sh FOLDER BUILT PROGRAM...      BUILT: the folder with the built programs
set -euo pipefail
# Every user reads what is installed.
umask 022
top=$(dirname "$(readlink -f "$0")")/..
folder=$1 built=$2
shift 2
doc=$folder/share/doc/valkey-rdma-tools

install -d "$folder/bin" "$doc" "$folder/lib/systemd/system"
for program; do
    install -m 755 "$built/$program" "$folder/bin"
    "$folder/bin/$program" --generate "$folder/share"
done
gateway=$top/valkey-rdma-gateway
install -m 644 "$gateway"/systemd/*.service "$gateway"/systemd/*.socket "$folder/lib/systemd/system"
install -m 644 "$top"/LICENSE-MIT "$top"/LICENSE-APACHE "$top"/CHANGELOG.md "$gateway/systemd/valkey-rdma-gateway.toml" "$doc"
(cd "$top" && release/third-party.py "$@") >"$doc/THIRD-PARTY.txt"
cp -r "$gateway/monitoring" "$doc"
# The operator's pages and those that they link to, in the same folders as here: their links lead to each other.
pages=$(cd "$top" && echo README.md docs/*.md spec/*.md valkey-rdma-{gateway,doctor,client}/README.md)
pages="$pages tests/conformance/README.md valkey-rdma-gateway/tests/alerts.yml"
for page in $pages; do
    install -D -m 644 "$top/$page" "$doc/$page"
done
cp -r "$gateway/systemd" "$doc/valkey-rdma-gateway"
ln -s ../monitoring "$doc/valkey-rdma-gateway/monitoring"

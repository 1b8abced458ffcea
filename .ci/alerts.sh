#!/usr/bin/env bash
# The gateway's alert rules, by Prometheus's own tool: their form, and which of them fire on which metrics.
#
# Debian has the tool in the package of the server, which is not installed here: it would start one.
set -euo pipefail
cd "$(dirname "$0")/.."
. tests/lab/packages.sh

dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT

fetch() {
    refresh_lists
    cd "$dir"
    # As root, apt would warn that its own user cannot write here.
    one_at_a_time apt-get -q -o APT::Sandbox::User=root download prometheus
    dpkg-deb -x prometheus_*.deb .
}

promtool=$(command -v promtool) || {
    quietly "fetching promtool" fetch
    promtool=$dir/usr/bin/promtool
}
"$promtool" check rules valkey-rdma-gateway/monitoring/prometheus-alerts.yml
"$promtool" test rules valkey-rdma-gateway/tests/alerts.yml

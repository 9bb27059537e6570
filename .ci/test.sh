#!/usr/bin/env bash
# Runs the tests of the named modules with the race detector, on one shared set of dev clusters.
# Usage: .ci/test.sh MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export GOWORK=off
export NAGELFLUH_DEVCLUSTER=${NAGELFLUH_DEVCLUSTER:-$root/bin/devcluster}

failed=
for m in "$@"; do
  echo "== test $m"
  # One package at a time: several start dev clusters, and two cores serve one set of clusters well.
  (cd "$m" && go test -race -p 1 -timeout 25m ./...) || failed="$failed $m"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }

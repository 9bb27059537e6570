#!/usr/bin/env bash
# Runs the tests of the named modules with the race detector; those of devcluster without it.
# Usage: .ci/test.sh MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export GOWORK=off
export NAGELFLUH_DEVCLUSTER=${NAGELFLUH_DEVCLUSTER:-$root/bin/devcluster}

# Without -v, go test keeps the reasons for skipping to itself. Tests are skipped for these, unless NAGELFLUH_REQUIRE_… is 1;
# what remains are two measurements of devcluster, which are asked for by variables of their own.
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v pg_ctl >/dev/null || [ -n "${NAGELFLUH_TEST_POSTGRES:-}" ] ||
  echo "note: PostgreSQL is not installed; the tests on it are skipped (apt-get install postgresql)" >&2
[ -x "$(dirname "$NAGELFLUH_DEVCLUSTER")/kueue" ] ||
  echo "note: Kueue is not built; the tests with it are skipped (devcluster/kueue.sh builds it)" >&2
[ -x "$(dirname "$NAGELFLUH_DEVCLUSTER")/containerd/containerd" ] ||
  echo "note: containerd is not built; the tests with real containers are skipped (devcluster/containerd.sh builds it; Linux, root)" >&2

failed=
for m in "$@"; do
  echo "== test $m"
  # One package at a time: several start dev clusters, and two cores serve one set of clusters well.
  flags=(-race -p 1 -timeout 25m)
  # What these test lies outside of their module, where the cache of results does not look.
  [ "$m" != e2e ] || flags+=(-count=1)
  cgo=1
  if [ "$m" = devcluster ]; then
    # The flags of its build: with others all of Kubernetes would be compiled a second time.
    flags=(-trimpath -p 1 -timeout 15m)
    cgo=0
  fi
  (cd "$m" && CGO_ENABLED=$cgo go test "${flags[@]}" ./...) || failed="$failed $m"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }

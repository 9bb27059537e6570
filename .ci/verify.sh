#!/usr/bin/env bash
# Fails when generated code is stale, the contract breaks, a module is untidy, or a platform does not build.
# Usage: .ci/verify.sh MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export GOWORK=off

# Sums, not git: code that is generated but not committed yet is not stale.
generated() { find sdk/proto core/api/client core/internal/httpapi/gen -type f -exec sha256sum {} + | sort -k 2; }
before=$(generated)
make --no-print-directory generate
if ! stale=$(diff <(echo "$before") <(generated)); then
  echo "generated code was stale; it is new now, commit it:" >&2
  echo "$stale" | sed -n 's/^[<>] [0-9a-f]*//p' | sort -u >&2
  exit 1
fi

# Against the base of the change where there is one, else against what is committed.
base=$(git rev-parse -q --verify origin/main || git rev-parse HEAD)
if git cat-file -e "$base:proto/buf.yaml" 2>/dev/null; then
  bin/tools/buf breaking proto --against ".git#ref=$base,subdir=proto"
fi

for m in "$@" devcluster; do
  (cd "$m" && go mod tidy -diff >/dev/null) || { echo "$m: go.mod is untidy: run 'go mod tidy' there" >&2; exit 1; }
done

for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
  for m in sdk core plugins/*; do
    echo "build $m for $platform" >&2
    (cd "$m" && CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath ./...)
  done
done

#!/usr/bin/env bash
# Fails when generated code is stale, the contract breaks, a module is untidy, or a platform does not build.
# Usage: .ci/verify.sh MODULE...
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export GOWORK=off

before=$(git status --porcelain)
make --no-print-directory generate
after=$(git status --porcelain)
if [ "$before" != "$after" ] || ! git diff --quiet -- sdk/proto core; then
  echo "generated code is stale: run 'make generate' and commit the result" >&2
  git --no-pager diff --stat -- sdk/proto core >&2
  exit 1
fi

# Against the base of the change where there is one, else against what is committed.
base=$(git rev-parse -q --verify origin/main || git rev-parse HEAD)
if git cat-file -e "$base:proto/buf.yaml" 2>/dev/null; then
  bin/tools/buf breaking proto --against ".git#ref=$base,subdir=proto"
fi

for m in "$@"; do
  (cd "$m" && go mod tidy -diff >/dev/null) || { echo "$m: go.mod is untidy: run 'go mod tidy' there" >&2; exit 1; }
done

for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
  for m in sdk core plugins/*; do
    echo "build $m for $platform" >&2
    (cd "$m" && CGO_ENABLED=0 GOOS=${platform%/*} GOARCH=${platform#*/} go build -trimpath ./...)
  done
done

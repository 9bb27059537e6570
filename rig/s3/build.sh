#!/bin/sh
# Builds bin/versitygw, the S3 server of the tests. About a minute of two CPUs
# the first time; nothing to do later.
set -eu

version=v1.8.0
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:-$here/../../bin}

mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
if [ -x "$bin/versitygw" ] && [ "$(cat "$bin/.versitygw.version" 2>/dev/null)" = "$version" ]; then
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "s3: building versitygw $version (about a minute of two CPUs the first time)" >&2
cd "$work" # no module here: the version decides, not ours
CGO_ENABLED=0 GOWORK=off GOFLAGS= GOBIN="$work" go install -trimpath -ldflags "-s -w" "github.com/versity/versitygw/cmd/versitygw@$version"
mv "$work/versitygw" "$bin/versitygw"
echo "$version" >"$bin/.versitygw.version"

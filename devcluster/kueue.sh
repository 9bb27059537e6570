#!/bin/sh
# Builds bin/kueue and bin/kueue-crds for `devcluster up --kueue`. About 10
# minutes of one CPU the first time; nothing to do later.
set -eu

version=v0.17.0
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:-$here/../bin}

if [ -x "$bin/kueue" ] && [ "$(cat "$bin/kueue-crds/VERSION" 2>/dev/null)" = "$version" ]; then
	exit 0
fi
mkdir -p "$bin/kueue-crds"
bin=$(cd "$bin" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "kueue: building $version (about 10 minutes of one CPU the first time)" >&2
cd "$work" # no module here: the version decides, not ours
CGO_ENABLED=0 GOWORK=off GOBIN="$work" go install -trimpath -ldflags "-s -w" "sigs.k8s.io/kueue/cmd/kueue@$version"
source=$(GOWORK=off go mod download -json "sigs.k8s.io/kueue@$version" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p')
rm -f "$bin"/kueue-crds/*.yaml
cp "$source"/config/components/crd/bases/*.yaml "$bin/kueue-crds/"
chmod u+w "$bin"/kueue-crds/*.yaml
mv "$work/kueue" "$bin/kueue"
echo "$version" >"$bin/kueue-crds/VERSION"
echo "kueue: built $bin/kueue" >&2

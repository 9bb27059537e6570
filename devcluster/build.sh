#!/bin/sh
# Builds bin/devcluster, with signs of life: the first build compiles some
# two thousand packages and takes about fifteen minutes of one CPU. Later ones
# only link. Quiet when there is nothing to do.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../bin/devcluster}
kubernetes=v1.37.2 # as in go.mod; clients ask the API server for it
minor=${kubernetes#v1.}
minor=${minor%%.*}

if [ -x "$out" ] && [ -z "$(find "$here" \( -name '*.go' -o -name go.mod -o -name go.sum -o -name build.sh \) \
	! -name '*_test.go' -newer "$out" -print | head -n 1)" ]; then
	exit 0
fi

mkdir -p "$(dirname "$out")"
work=$(mktemp -d)
pid=
trap 'if [ -n "$pid" ]; then kill "$pid" 2>/dev/null || :; fi; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
start=$(date +%s)

cd "$here"
echo "devcluster: building (the first time compiles all of Kubernetes; about 10 minutes on two CPUs)" >&2
CGO_ENABLED=0 GOWORK=off go build -v -trimpath -buildvcs=false \
	-ldflags "-s -w \
		-X k8s.io/component-base/version.gitVersion=$kubernetes \
		-X k8s.io/component-base/version.gitMajor=1 \
		-X k8s.io/component-base/version.gitMinor=$minor" \
	-o "$out.new" ./cmd/devcluster >"$work/out" 2>&1 &
pid=$!
ticks=0
while kill -0 "$pid" 2>/dev/null; do
	sleep 1
	ticks=$((ticks + 1))
	if [ $((ticks % 15)) -eq 0 ]; then
		seconds=$(($(date +%s) - start))
		printf 'devcluster: %dm%02ds, %d packages compiled\n' \
			$((seconds / 60)) $((seconds % 60)) "$(grep -c '/' "$work/out" || :)" >&2
	fi
done
if ! wait "$pid"; then
	pid=
	echo "devcluster: the build failed:" >&2
	tail -n 20 "$work/out" >&2
	exit 1
fi
pid=
# Whoever runs the old binary keeps it.
mv "$out.new" "$out"
seconds=$(($(date +%s) - start))
printf 'devcluster: built %s in %dm%02ds\n' "$out" $((seconds / 60)) $((seconds % 60)) >&2

#!/bin/sh
# Builds bin/containerd/ for `devcluster up --containers`, and installs the
# programs that it starts (Debian's packages; as root). About two minutes of one
# CPU the first time; nothing to do later.
set -eu

version=v2.4.2
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:-$here/../bin}/containerd

[ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || { echo "containerd: needs Linux and root" >&2; exit 1; }
need=
command -v runc >/dev/null || need="$need runc"
command -v iptables >/dev/null || need="$need iptables"
command -v ip >/dev/null || need="$need iproute2"
command -v busybox >/dev/null && file=$(command -v busybox) && [ ! -L "$file" ] || need="$need busybox-static"
[ -x /usr/lib/cni/bridge ] || need="$need containernetworking-plugins"
if [ -n "$need" ]; then
	echo "containerd: installing$need" >&2
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need >/dev/null
fi

if [ "$(cat "$bin/VERSION" 2>/dev/null)" = "$version" ]; then
	exit 0
fi
mkdir -p "$bin"
bin=$(cd "$bin" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
echo "containerd: building $version (about two minutes of one CPU the first time)" >&2
cd "$work" # no module here: the version decides, not ours
for name in containerd containerd-shim-runc-v2 ctr; do
	CGO_ENABLED=0 GOWORK=off GOBIN="$work" go install -trimpath -ldflags "-s -w" \
		"github.com/containerd/containerd/v2/cmd/$name@$version"
	mv "$name" "$bin/$name"
done
echo "$version" >"$bin/VERSION"
echo "containerd: built $bin" >&2

#!/usr/bin/env bash
# Installs the pinned developer tools into bin/tools, each only when it is absent or of another version.
# Usage: .ci/tools.sh buf protoc-gen-go ...   (no argument: all of them)
set -euo pipefail
cd "$(dirname "$0")/.."

# One line a tool: name, module path, version.
tools='
buf                github.com/bufbuild/buf/cmd/buf                             v1.75.0
protoc-gen-go      google.golang.org/protobuf/cmd/protoc-gen-go                v1.36.12
protoc-gen-go-grpc google.golang.org/grpc/cmd/protoc-gen-go-grpc               v1.6.1
oapi-codegen       github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen    v2.8.2
golangci-lint      github.com/golangci/golangci-lint/v2/cmd/golangci-lint      v2.15.0
'

mkdir -p bin/tools
bin=$PWD/bin/tools
while read -r name path version; do
  [ -n "$name" ] || continue
  if [ $# -gt 0 ]; then
    case " $* " in *" $name "*) ;; *) continue ;; esac
  fi
  [ -x "$bin/$name" ] && [ "$(cat "$bin/.$name.version" 2>/dev/null)" = "$version" ] && continue
  echo "installing $name $version (once)" >&2
  GOWORK=off GOFLAGS= GOBIN=$bin CGO_ENABLED=0 go install "$path@$version"
  echo "$version" > "$bin/.$name.version"
done <<EOT
$tools
EOT

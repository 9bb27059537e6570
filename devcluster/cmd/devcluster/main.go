// Command devcluster runs throw-away Kubernetes clusters on loopback.
package main

import (
	"os"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/cli"

	// For its init: this binary is also the reaper of pods' processes.
	_ "github.com/nagelfluh/nagelfluh/devcluster/internal/reaper"
)

func main() {
	os.Exit(cli.Main())
}

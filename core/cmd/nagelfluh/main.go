// Command nagelfluh is the server and the command line.
package main

import "github.com/nagelfluh/nagelfluh/core/internal/cli"

func main() { cli.Main() }

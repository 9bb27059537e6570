// The selector-gpu plugin sends jobs that ask for GPUs to clusters that have them.
package main

import "github.com/nagelfluh/nagelfluh/sdk"

func main() { sdk.Serve(info, &gpuSelector{}) }

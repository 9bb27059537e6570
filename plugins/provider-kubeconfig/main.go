// The provider-kubeconfig plugin serves the cluster type kubeconfig: a cluster is reached with a kubeconfig that an admin
// pastes.
package main

import "github.com/nagelfluh/nagelfluh/sdk"

func main() { sdk.Serve(info, newProvider()) }

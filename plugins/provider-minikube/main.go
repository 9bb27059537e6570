// The provider-minikube plugin serves the cluster type minikube: a minikube on some host that the server reaches.
package main

import "github.com/nagelfluh/nagelfluh/sdk"

func main() { sdk.Serve(info, newProvider()) }

// The provider-sameasbackend plugin serves the cluster type same-as-backend: jobs run where the server itself is at home.
package main

import "github.com/nagelfluh/nagelfluh/sdk"

func main() { sdk.Serve(info, &backend{}) }

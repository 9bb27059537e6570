package main

import (
	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/provider/kubeconfigprovider"
)

var info = sdk.Info{Name: "kubeconfig", Version: "1.0.0", Title: "Reaches clusters with a kubeconfig"}

// newProvider has no logic of its own: reading, checking and trimming a kubeconfig is the sdk's, where every provider
// whose config is a kubeconfig finds it.
func newProvider() *kubeconfigprovider.Provider {
	return kubeconfigprovider.New(kubeconfigprovider.Options{
		Type:  "kubeconfig",
		Title: "Kubeconfig",
		Description: "Any cluster that a kubeconfig with a token or a client certificate reaches. Commands and files that a " +
			"kubeconfig refers to do not exist on the server, so everything has to be in the text.",
		HelpCommand: "kubectl config view --raw --minify --flatten",
	})
}

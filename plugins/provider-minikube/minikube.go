package main

import (
	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/provider/kubeconfigprovider"
)

var info = sdk.Info{Name: "minikube", Version: "1.0.0", Title: "Reaches minikube clusters"}

// minikube connects as every provider with a kubeconfig does. It is a type of its own, and not just an alias, because
// what leads to that kubeconfig is minikube's.
type minikube struct {
	*kubeconfigprovider.Provider
}

var (
	_ provider.Provider  = minikube{}
	_ provider.Validator = minikube{}
)

func newProvider() minikube {
	return minikube{kubeconfigprovider.New(kubeconfigprovider.Options{
		Type:  "minikube",
		Title: "minikube",
		Description: "A minikube on a host that this server reaches. Its API server must listen on an address of that host " +
			"and not only on loopback: minikube start --ports=<port>:8443 --apiserver-ips=<host's address>.",
		HelpCommand: "minikube kubectl -- config view --raw --minify --flatten",
	})}
}

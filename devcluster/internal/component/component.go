// Package component turns one binary into the programs of a control plane.
//
// The API server, the controller manager and the scheduler keep flags, feature
// gates and metrics in package variables, so two of them cannot share a
// process. The supervisor starts this binary again for each of them, with a
// hidden sub-command, and they meet over loopback as on a real machine.
package component

import (
	"context"

	"github.com/spf13/cobra"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

// Commands maps each name to a constructor. They are constructors because
// building one of these commands registers global flags; only the one that this
// process is going to be may be built.
var Commands = map[string]func() *cobra.Command{
	controlplane.APIServer:         func() *cobra.Command { return apiserver.NewAPIServerCommand() },
	controlplane.ControllerManager: func() *cobra.Command { return controllermanager.NewControllerManagerCommand() },
	controlplane.Scheduler:         func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	controlplane.Etcd:              newEtcdCommand,
	"kubelet":                      func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
)

// Names of the components, and of the hidden sub-commands that are them.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Etcd              = "etcd"
)

// NodeKind makes the nodes of a cluster. Nodes that run a pod's commands as
// local processes are one kind; a kubelet with containerd can be another.
type NodeKind interface {
	// Programs returns what to start, in order, once the API server is ready.
	// They are stopped in the opposite order before everything else.
	Programs(spec Spec, paths Paths) []child.Program
	// Grace is how long they may take to end.
	Grace() time.Duration
}

// Addon is something that runs beside a cluster and uses its API.
type Addon interface {
	// Programs returns what to start once the cluster is usable.
	Programs(context.Context, *Cluster) ([]child.Program, error)
	// Finish is called when those programs are ready.
	Finish(context.Context, *Cluster) error
}

func (c *Cluster) etcdProgram() child.Program {
	return c.program(Etcd,
		"--data-dir="+c.Paths.etcd(),
		"--client-url="+c.etcdURL(),
		fmt.Sprintf("--peer-url=http://127.0.0.1:%d", c.etcdPeerPort),
		"--cert-file="+c.pki("etcd.crt"),
		"--key-file="+c.pki("etcd.key"),
		"--ca-file="+c.pki("ca.crt"),
	)
}

func (c *Cluster) apiServerProgram() child.Program {
	return c.program(APIServer,
		"--etcd-servers="+c.etcdURL(),
		"--etcd-cafile="+c.pki("ca.crt"),
		"--etcd-certfile="+c.pki("etcd-client.crt"),
		"--etcd-keyfile="+c.pki("etcd-client.key"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", c.apiPort),
		// The address that pods would use; none can, and a machine without any
		// network has none to offer. (From a block reserved for examples.)
		"--advertise-address=192.0.2.1",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file="+c.pki("apiserver.crt"),
		"--tls-private-key-file="+c.pki("apiserver.key"),
		"--client-ca-file="+c.pki("ca.crt"),
		"--token-auth-file="+c.Paths.tokens(),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.pki("serviceaccount.pub"),
		"--service-account-signing-key-file="+c.pki("serviceaccount.key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority="+c.pki("ca.crt"),
		"--kubelet-client-certificate="+c.pki("kubelet-client.crt"),
		"--kubelet-client-key="+c.pki("kubelet-client.key"),
		"--audit-policy-file="+c.Paths.policy(),
		"--audit-log-path="+c.Paths.AuditLog(),
		"--audit-log-maxsize=1024",
		"--allow-privileged=true",
		"--profiling=false",
	)
}

func (c *Cluster) controllerManagerProgram() child.Program {
	return c.program(ControllerManager,
		"--kubeconfig="+c.Paths.UserKubeconfig(fileController),
		"--service-account-private-key-file="+c.pki("serviceaccount.key"),
		"--root-ca-file="+c.pki("ca.crt"),
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
		// A thousand Jobs are some five thousand requests; with the default of
		// 20 a second they would take minutes.
		"--kube-api-qps=2000",
		"--kube-api-burst=4000",
		"--concurrent-job-syncs=20",
		"--controllers=*,-horizontal-pod-autoscaler-controller",
	)
}

func (c *Cluster) schedulerProgram() child.Program {
	return c.program(Scheduler,
		"--config="+c.Paths.scheduler(),
		"--secure-port=0",
	)
}

func (c *Cluster) program(name string, args ...string) child.Program {
	return child.Program{
		Name: name, Args: append([]string{name}, args...), LogFile: c.Paths.Log(name),
		// Memory is cheaper here than the CPU that collecting garbage costs.
		Env: []string{"GOGC=200"},
	}
}

func (c *Cluster) pki(file string) string { return filepath.Join(c.Paths.PKI(), file) }

func (c *Cluster) etcdURL() string { return fmt.Sprintf("https://127.0.0.1:%d", c.etcdPort) }

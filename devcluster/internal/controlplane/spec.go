// Package controlplane runs one cluster: etcd, the API server, the controller
// manager, the scheduler and the programs that are its nodes, each a child
// process on loopback.
package controlplane

import (
	"fmt"
	"path/filepath"
	"regexp"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Spec is what a cluster is asked to be.
type Spec struct {
	Name   string `json:"name"`
	Nodes  int    `json:"nodes"`
	GPUs   int    `json:"gpus"`   // nvidia.com/gpu of every node
	CPU    string `json:"cpu"`    // of every node
	Memory string `json:"memory"` // of every node
	Pods   int    `json:"pods"`   // of every node
	// AuditObjects has the audit log hold the objects of Jobs and pods, with their status.
	AuditObjects bool `json:"auditObjects,omitempty"`
	// NodeAddress is the node's when it is not on loopback.
	NodeAddress string `json:"nodeAddress,omitempty"`
}

// Names become folder names and host names of nodes.
var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// Validate says what is wrong with the spec and how to write it.
func (s Spec) Validate() error {
	if !validName.MatchString(s.Name) {
		return fmt.Errorf("cluster name %q: use 1 to 40 lower-case letters, digits and dashes, with a letter or digit at both ends", s.Name)
	}
	if s.Nodes < 1 || s.Nodes > 100 {
		return fmt.Errorf("cluster %s: %d nodes: use 1 to 100", s.Name, s.Nodes)
	}
	if s.GPUs < 0 {
		return fmt.Errorf("cluster %s: %d GPUs: use 0 or more", s.Name, s.GPUs)
	}
	if s.Pods < 1 {
		return fmt.Errorf("cluster %s: %d pods a node: use 1 or more", s.Name, s.Pods)
	}
	for what, quantity := range map[string]string{"cpu": s.CPU, "memory": s.Memory} {
		if _, err := resource.ParseQuantity(quantity); err != nil {
			return fmt.Errorf("cluster %s: %s %q is not a quantity: write for example 64 or 256Gi", s.Name, what, quantity)
		}
	}
	return nil
}

// Paths are the files of a cluster, all below one folder.
type Paths struct{ Dir string }

// Kubeconfig is the administrator's.
func (p Paths) Kubeconfig() string { return filepath.Join(p.Dir, "kubeconfig") }

// AuditLog has one JSON object a line for each logged request.
func (p Paths) AuditLog() string { return filepath.Join(p.Dir, "audit.log") }

// Log returns the log file of a component.
func (p Paths) Log(component string) string { return filepath.Join(p.Dir, "logs", component+".log") }

// PKI is the folder of keys and certificates.
func (p Paths) PKI() string { return filepath.Join(p.Dir, "pki") }

// UserKubeconfig returns the kubeconfig of a component.
func (p Paths) UserKubeconfig(user string) string {
	return filepath.Join(p.Dir, "pki", user+".kubeconfig")
}

func (p Paths) etcd() string      { return filepath.Join(p.Dir, "etcd") }
func (p Paths) tokens() string    { return filepath.Join(p.PKI(), "tokens.csv") }
func (p Paths) policy() string    { return filepath.Join(p.Dir, "audit-policy.yaml") }
func (p Paths) scheduler() string { return filepath.Join(p.Dir, "scheduler.yaml") }

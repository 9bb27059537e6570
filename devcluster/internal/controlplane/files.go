package controlplane

import (
	"fmt"
	"net"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/pki"
)

// users of the token file. All are masters: a throw-away cluster needs no walls
// between its own parts, and controllers without ServiceAccounts of their own
// start faster. What tests is about, users' rights, is RBAC as everywhere.
var users = []string{"admin", "system:kube-controller-manager", "system:kube-scheduler", "devcluster:nodes"}

const (
	userAdmin      = "admin"
	fileController = "controller-manager"
	fileScheduler  = "scheduler"
	// FileNodes is the UserKubeconfig of the nodes' programs.
	FileNodes = "nodes"
)

// auditPolicy logs who changes what Nagelfluh creates, so that a test can count
// at the source. The leases of nodes are renewed all the time and are left out.
// With objects it logs those that are sent and answered too, for checks that ask
// what became of a Job or a pod and when; that is some 20 KB a Job more.
func auditPolicy(objects bool) string {
	whole := ""
	if objects {
		whole = `- level: RequestResponse
  omitManagedFields: true
  verbs: [create, delete, deletecollection, update, patch]
  resources:
  - group: ""
    resources: [pods, pods/status]
  - group: batch
    resources: [jobs, jobs/status]
`
	}
	return `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  namespaces: [kube-node-lease]
` + whole + `- level: Metadata
  verbs: [create, delete, deletecollection, update, patch]
  resources:
  - group: ""
    resources: [pods, secrets]
  - group: batch
    resources: [jobs]
  - group: coordination.k8s.io
    resources: [leases]
- level: None
`
}

// writeFiles makes everything that the components read at start.
func (c *Cluster) writeFiles() error {
	for _, dir := range []string{c.Paths.Dir, c.Paths.PKI(), c.Paths.Dir + "/logs"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("cluster %s: make its folder: %w", c.Spec.Name, err)
		}
	}
	ca, err := pki.New(c.Paths.PKI(), c.Spec.Name)
	if err != nil {
		return err
	}
	var nodes []net.IP
	if c.Spec.NodeAddress != "" {
		nodes = append(nodes, net.ParseIP(c.Spec.NodeAddress))
	}
	for _, name := range []string{"apiserver", "etcd", "etcd-client", "kubelet", "kubelet-client"} {
		if err := ca.Issue(name, "devcluster:"+name, nodes...); err != nil {
			return err
		}
	}
	if err := ca.SigningKey("serviceaccount"); err != nil {
		return err
	}
	var tokens strings.Builder
	kubeconfigs := map[string]string{
		userAdmin:                        c.Paths.Kubeconfig(),
		"system:kube-controller-manager": c.Paths.UserKubeconfig(fileController),
		"system:kube-scheduler":          c.Paths.UserKubeconfig(fileScheduler),
		"devcluster:nodes":               c.Paths.UserKubeconfig(FileNodes),
	}
	for i, user := range users {
		token := pki.Token()
		fmt.Fprintf(&tokens, "%s,%s,%d,\"system:masters\"\n", token, user, i+1)
		if err := c.writeKubeconfig(kubeconfigs[user], user, token, ca.PEM); err != nil {
			return err
		}
	}
	schedulerConfig := fmt.Sprintf(`apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 2000, burst: 4000}
`, c.Paths.UserKubeconfig(fileScheduler))
	for path, text := range map[string]string{
		c.Paths.tokens():    tokens.String(),
		c.Paths.policy():    auditPolicy(c.Spec.AuditObjects),
		c.Paths.scheduler(): schedulerConfig,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return fmt.Errorf("cluster %s: %w", c.Spec.Name, err)
		}
	}
	return nil
}

// writeKubeconfig embeds everything: the file can be copied anywhere.
func (c *Cluster) writeKubeconfig(path, user, token string, ca []byte) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[c.Spec.Name] = &clientcmdapi.Cluster{Server: c.Server(), CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[c.Spec.Name] = &clientcmdapi.Context{Cluster: c.Spec.Name, AuthInfo: user}
	config.CurrentContext = c.Spec.Name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("cluster %s: write the kubeconfig of %s: %w", c.Spec.Name, user, err)
	}
	return nil
}

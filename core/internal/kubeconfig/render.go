package kubeconfig

import "sigs.k8s.io/yaml"

// What is written: the allow-list as types. A field that is not here cannot get through.
type (
	outFile struct {
		APIVersion string       `json:"apiVersion"`
		Kind       string       `json:"kind"`
		Clusters   []outCluster `json:"clusters"`
		Users      []outUser    `json:"users"`
		Contexts   []outContext `json:"contexts"`
		Current    string       `json:"current-context"`
	}
	outCluster struct {
		Name    string `json:"name"`
		Cluster struct {
			Server     string `json:"server"`
			ServerName string `json:"tls-server-name,omitempty"`
			CA         []byte `json:"certificate-authority-data,omitempty"`
			Insecure   bool   `json:"insecure-skip-tls-verify,omitempty"`
			ProxyURL   string `json:"proxy-url,omitempty"`
		} `json:"cluster"`
	}
	outUser struct {
		Name string `json:"name"`
		User struct {
			Token string `json:"token,omitempty"`
			Cert  []byte `json:"client-certificate-data,omitempty"`
			Key   []byte `json:"client-key-data,omitempty"`
		} `json:"user"`
	}
	outContext struct {
		Name    string `json:"name"`
		Context struct {
			Cluster   string `json:"cluster"`
			User      string `json:"user"`
			Namespace string `json:"namespace,omitempty"`
		} `json:"context"`
	}
)

// render writes the kubeconfig of a result. Its inner names are fixed; the context keeps its own.
func render(r Result) ([]byte, error) {
	c, u, x := outCluster{Name: "cluster"}, outUser{Name: "user"}, outContext{Name: r.Context}
	c.Cluster.Server, c.Cluster.ServerName, c.Cluster.CA = r.Server, r.ServerName, r.CA
	c.Cluster.Insecure, c.Cluster.ProxyURL = r.Insecure, r.ProxyURL
	u.User.Token, u.User.Cert, u.User.Key = r.Token, r.ClientCert, r.ClientKey
	x.Context.Cluster, x.Context.User, x.Context.Namespace = c.Name, u.Name, r.Namespace
	return yaml.Marshal(outFile{
		APIVersion: "v1", Kind: "Config",
		Clusters: []outCluster{c}, Users: []outUser{u}, Contexts: []outContext{x}, Current: r.Context,
	})
}

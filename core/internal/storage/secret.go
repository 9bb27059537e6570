package storage

// Secret is the Secret of a project's credentials at a cluster.
type Secret struct {
	ClusterID, Namespace, Name string
}

// ID tells Secrets apart.
func (s Secret) ID() string { return s.ClusterID + "/" + s.Namespace + "/" + s.Name }

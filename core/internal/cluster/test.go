package cluster

import "context"

// Tester tests connections: of a row as it is, or of one that is being entered and has no id yet.
type Tester interface {
	// Test goes the whole way to the cluster with the type, config, namespace and queue of c, without changing anything
	// anywhere. It ends within its own deadline or with ctx. What it finds is in the report, also every failure.
	Test(ctx context.Context, c Cluster) Report
}

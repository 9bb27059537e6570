package cluster

import "context"

// Tester tests connections: of a row as it is, or of one that is being entered and has no id yet.
type Tester interface {
	// Test goes the whole way to the cluster with the type, config, namespace and queue of c, without changing anything
	// anywhere. It ends within its own deadline or with ctx. What it finds is in the report, also every failure.
	Test(ctx context.Context, c Cluster) Report
	// Check goes only as far as is possible without the cluster: the provider's Connect, and the policy for the kubeconfig
	// that it gives. It is what is left of the test when an admin saves a cluster that cannot be reached now: nobody may save
	// what the policy refuses. The report is that of Test with the phases after policy left out; OK says that both passed.
	Check(ctx context.Context, c Cluster) Report
}

// ClassPolicy is the class of a report on a kubeconfig that the policy refuses, and ClassConfig that of a provider config
// that its provider refuses. All other classes are those of package kube.
const (
	ClassPolicy = "policy"
	ClassConfig = "config"
)

package kueue

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

// version is the API version of the queues.
const version = "v1beta2"

// converted are the definitions for which Kueue insists on serving conversions.
var converted = map[string]bool{
	"localqueues.kueue.x-k8s.io": true, "clusterqueues.kueue.x-k8s.io": true, "workloads.kueue.x-k8s.io": true,
	"cohorts.kueue.x-k8s.io": true, "multikueueclusters.kueue.x-k8s.io": true,
}

type object = map[string]any

// installer applies objects as an administrator.
type installer struct{ client dynamic.Interface }

func newInstaller(kubeconfig string) (*installer, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kueue: read the cluster's kubeconfig: %w", err)
	}
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("kueue: %w", err)
	}
	return &installer{client}, nil
}

func (i *installer) apply(ctx context.Context, group, version, resource, namespace string, o object) error {
	wanted := &unstructured.Unstructured{Object: o}
	_, err := i.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}).Namespace(namespace).
		Apply(ctx, wanted.GetName(), wanted, metav1.ApplyOptions{FieldManager: "devcluster", Force: true})
	if err != nil {
		return fmt.Errorf("kueue: apply %s %s: %w", resource, wanted.GetName(), err)
	}
	return nil
}

// install brings the definitions, the namespace and the certificates.
func (i *installer) install(ctx context.Context, crds string, webhookPort int, made *certificates) error {
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("kueue: no definitions in %s: run devcluster/kueue.sh again", crds)
	}
	encode := base64.StdEncoding.EncodeToString
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("kueue: %w", err)
		}
		var definition object
		if err := yaml.Unmarshal(text, &definition); err != nil {
			return fmt.Errorf("kueue: %s: %w", file, err)
		}
		name := (&unstructured.Unstructured{Object: definition}).GetName()
		if converted[name] {
			definition["spec"].(object)["conversion"] = object{
				"strategy": "Webhook",
				"webhook": object{
					"conversionReviewVersions": []any{"v1"},
					"clientConfig": object{
						"url":      fmt.Sprintf("https://127.0.0.1:%d/convert", webhookPort),
						"caBundle": encode(made.caCert),
					},
				},
			}
		}
		if err := i.apply(ctx, "apiextensions.k8s.io", "v1", "customresourcedefinitions", "", definition); err != nil {
			return err
		}
		names = append(names, name)
	}
	if err := i.apply(ctx, "", "v1", "namespaces", "", object{
		"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": namespace},
	}); err != nil {
		return err
	}
	if err := i.apply(ctx, "", "v1", "secrets", namespace, object{
		"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": secretName, "namespace": namespace},
		"data": object{
			"ca.crt": encode(made.caCert), "ca.key": encode(made.caKey),
			"tls.crt": encode(made.cert), "tls.key": encode(made.key),
		},
	}); err != nil {
		return err
	}
	// Kueue gives up when a definition is not served yet.
	for _, name := range names {
		if err := i.established(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (i *installer) established(ctx context.Context, name string) error {
	definitions := i.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for {
		definition, err := definitions.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
			for _, condition := range conditions {
				if c, ok := condition.(object); ok && c["type"] == "Established" && c["status"] == "True" {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("kueue: definition %s is not established: %w", name, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// queues makes a flavor, a cluster queue with all that the nodes have, open to
// all namespaces, and a local queue in the namespace "default". All are named
// "default".
func (i *installer) queues(ctx context.Context, spec controlplane.Spec) error {
	resources := []any{}
	covered := []any{}
	cover := func(name, quantity string) {
		total := resource.MustParse(quantity)
		total.Mul(int64(spec.Nodes))
		resources = append(resources, object{"name": name, "nominalQuota": total.String()})
		covered = append(covered, name)
	}
	cover("cpu", spec.CPU)
	cover("memory", spec.Memory)
	if spec.GPUs > 0 {
		cover("nvidia.com/gpu", fmt.Sprint(spec.GPUs))
	}
	const group = "kueue.x-k8s.io"
	kind := func(kind string, spec object) object {
		return object{"apiVersion": group + "/" + version, "kind": kind, "metadata": object{"name": "default"}, "spec": spec}
	}
	local := kind("LocalQueue", object{"clusterQueue": "default"})
	local["metadata"].(object)["namespace"] = "default"
	for _, o := range []object{
		kind("ResourceFlavor", object{}),
		kind("ClusterQueue", object{
			"namespaceSelector": object{},
			"preemption":        object{"withinClusterQueue": "LowerPriority"},
			"resourceGroups": []any{object{
				"coveredResources": covered,
				"flavors":          []any{object{"name": "default", "resources": resources}},
			}},
		}),
		local,
	} {
		namespace, _, _ := unstructured.NestedString(o, "metadata", "namespace")
		plural := strings.ToLower(o["kind"].(string)) + "s"
		if err := i.apply(ctx, group, version, plural, namespace, o); err != nil {
			return err
		}
	}
	return nil
}

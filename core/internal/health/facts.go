package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// errNoVersion: an answer came that no Kubernetes gives.
var errNoVersion = errors.New("the answer to /version is none of Kubernetes")

// serverVersion asks what runs there.
func serverVersion(ctx context.Context, c *kube.Client) (string, error) {
	body, err := c.Probe().Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return "", err
	}
	var v version.Info
	if err := json.Unmarshal(body, &v); err != nil {
		return "", fmt.Errorf("%w: %w", errNoVersion, err)
	}
	if v.GitVersion == "" {
		return "", errNoVersion
	}
	return v.GitVersion, nil
}

// mayWork lists Jobs, which every cluster must allow: an address that answers everybody's question for its version
// proves nothing about the credentials. The name, which no Job has, keeps the answer empty: from its cache, the API server
// gives all that there are, whatever the limit.
func mayWork(ctx context.Context, c *kube.Client) error {
	_, err := c.Probe().BatchV1().Jobs(c.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=nagelfluh-probe", ResourceVersion: "0"})
	return err
}

// readSlowFacts looks at what hardly ever changes: the namespace and which cluster it is.
func (c *check) readSlowFacts(ctx context.Context, client *kube.Client, now time.Time) {
	if client == c.facts && now.Sub(c.factsAt) < slowFacts {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.m.o.Timeout)
	defer cancel()
	if c.m.o.EnsureNamespace {
		if err := kube.EnsureNamespace(ctx, client); err != nil {
			c.log.Warn("the job namespace cannot be made sure of", "error", err)
			return // the next probe tries again
		}
	}
	identity, certain, err := identityOf(ctx, client)
	if err != nil {
		return
	}
	switch before := c.seen.Identity; {
	case identity == "" || identity == before:
	case before == "":
		c.seen.Identity = identity
	case certain:
		c.log.Warn("another cluster answers under this row than before", "before", before, "now", identity)
		c.seen.Identity = identity
	default: // kube-system cannot be seen any more: that makes it no other cluster
	}
	c.facts, c.factsAt = client, now
}

// identityOf is the UID of kube-system, which is certain, else of the job namespace, else empty: unknown.
func identityOf(ctx context.Context, client *kube.Client) (uid string, certain bool, err error) {
	for _, name := range []string{metav1.NamespaceSystem, client.Namespace} {
		ns, err := client.Probe().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return string(ns.UID), name == metav1.NamespaceSystem, nil
		}
		if class := kube.Classify(err); class != kube.Permissions && class != kube.NotFound {
			return "", false, err
		}
	}
	return "", false, nil
}

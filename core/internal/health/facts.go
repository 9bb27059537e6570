package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

const (
	// expiresSoon is how long before their end credentials that nobody renews are spoken of.
	expiresSoon = 30 * 24 * time.Hour
	// mostSkew is how far the clocks may be apart: more, and certificates and tokens are judged wrongly.
	mostSkew = 30 * time.Second
)

// errNoVersion: an answer came that no Kubernetes gives.
var errNoVersion = errors.New("the answer to /version is none of Kubernetes")

// serverVersion asks what runs there; empty: the account may not ask, which no Job needs. Probes are not repeated by client-go: its pauses would hide a broken connection for
// as long as a probe may take.
func serverVersion(ctx context.Context, c *kube.Client) (string, error) {
	answer := c.Probe().Discovery().RESTClient().Get().MaxRetries(0).AbsPath("/version").Do(ctx)
	if err := answer.Error(); err != nil { // unlike Raw, it reads the Status that a Kubernetes API refuses with
		if kube.Classify(err) == kube.Permissions {
			return "", nil
		}
		return "", err
	}
	body, err := answer.Raw()
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
	return c.Probe().BatchV1().RESTClient().Get().MaxRetries(0).Namespace(c.Namespace).Resource("jobs").
		VersionedParams(&metav1.ListOptions{FieldSelector: "metadata.name=nagelfluh-probe", ResourceVersion: "0"}, scheme.ParameterCodec).
		Do(ctx).Error()
}

// readSlowFacts looks at what hardly ever changes: the namespace, which cluster it is, its clock, and the account's rights.
// What is amiss with them is looked at again each time.
func (c *check) readSlowFacts(ctx context.Context, client *kube.Client, now time.Time) {
	c.takeIdentity()
	if client == c.facts && now.Sub(c.factsAt) < slowFacts {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.m.o.Timeout)
	defer cancel()
	c.readClock(ctx, client, now)
	if c.m.o.EnsureNamespace {
		if err := kube.EnsureNamespace(ctx, client); err != nil {
			c.log.Warn("the job namespace cannot be made sure of", "error", err)
			if class := kube.Classify(err); !lost(class) {
				c.set(cluster.NamespaceReady, cluster.False, string(class), sentence(class, err), now)
			}
			return
		}
	}
	system, err := namespace(ctx, client, metav1.NamespaceSystem)
	if err != nil {
		return
	}
	own, err := namespace(ctx, client, client.Namespace)
	if err != nil {
		return
	}
	c.judgeNamespace(own, client.Namespace, now)
	c.judgeIdentity(system, own, now)
	if refused, err := refusedRights(ctx, client); err == nil {
		c.refused = refused
		c.judgeRights(now)
	}
	for _, t := range []cluster.ConditionType{cluster.NamespaceReady, cluster.SameCluster, cluster.Permitted} {
		if c.seen.Condition(t).Status == cluster.False {
			return
		}
	}
	c.facts, c.factsAt = client, now
}

// seenNamespace is what a namespace looks like; uid is empty when it is not there or may not be seen.
type seenNamespace struct {
	uid            string
	missing, going bool
}

func namespace(ctx context.Context, client *kube.Client, name string) (seenNamespace, error) {
	ns, err := client.Probe().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch kube.Classify(err) {
	case kube.OK:
		return seenNamespace{uid: string(ns.UID), going: ns.Status.Phase == corev1.NamespaceTerminating || ns.DeletionTimestamp != nil}, nil
	case kube.NotFound:
		return seenNamespace{missing: true}, nil
	case kube.Permissions:
		return seenNamespace{}, nil
	default:
		return seenNamespace{}, err
	}
}

func (c *check) judgeNamespace(own seenNamespace, name string, now time.Time) {
	switch {
	case own.missing:
		c.set(cluster.NamespaceReady, cluster.False, reasonMissing, fmt.Sprintf("The namespace %s is not there, and the account may not make it.", name), now)
	case own.going:
		c.set(cluster.NamespaceReady, cluster.False, reasonTerminating, fmt.Sprintf("The namespace %s is being removed.", name), now)
	case own.uid == "":
		c.set(cluster.NamespaceReady, cluster.True, reasonUnseen, fmt.Sprintf("The account may not read the namespace %s: the first Job shows whether it is there.", name), now)
	default:
		c.set(cluster.NamespaceReady, cluster.True, "", "", now)
	}
}

// judgeIdentity says whether it is the cluster that was first seen here: by the UID of kube-system, else of the job
// namespace. Another one is never taken for it; an admin corrects the connection, or confirms.
func (c *check) judgeIdentity(system, own seenNamespace, now time.Time) {
	const changed = "Another cluster answers under this entry than before (identity %s, not %s). Correct its connection, or send it again with confirm_identity."
	known := c.seen.Identity
	same, _ := cluster.Recognise(c.seen.Identities(), system.uid, own.uid)
	switch {
	case same, known == "" && (system.uid != "" || own.uid != ""):
		if known == c.seen.NamespaceUID {
			known = system.uid // until now its namespace alone told, which can be made anew
		}
		c.seen.Identity = cmp.Or(known, system.uid, own.uid)
		c.seen.NamespaceUID = cmp.Or(own.uid, c.seen.NamespaceUID)
		c.set(cluster.SameCluster, cluster.True, "", "", now)
	case known != "" && system.uid != "":
		if c.seen.Condition(cluster.SameCluster).Status != cluster.False {
			c.log.Warn("another cluster answers under this row than before", "before", known, "now", system.uid)
		}
		c.set(cluster.SameCluster, cluster.False, reasonIdentity, fmt.Sprintf(changed, system.uid, known), now)
	case c.seen.Condition(cluster.SameCluster).Status != cluster.False:
		// What cannot be seen makes it no other cluster; nor does it take back that it is one.
		c.set(cluster.SameCluster, cluster.Unknown, reasonUnseen, "The account may read neither kube-system nor what it was first known by.", now)
	}
}

// takeIdentity takes over the identity that the row was given since: an admin has confirmed another one.
func (c *check) takeIdentity() {
	c.mu.Lock()
	id, space, given := c.row.Observed.Identity, c.row.Observed.NamespaceUID, c.given
	c.given = false
	c.mu.Unlock()
	if given && (id != c.seen.Identity || space != c.seen.NamespaceUID) {
		c.seen.Identity, c.seen.NamespaceUID, c.facts = id, space, nil
	}
}

// readClock compares the cluster's clock with ours, by the date of an answer, which has whole seconds. What does not tell
// leaves it as it was.
func (c *check) readClock(ctx context.Context, client *kube.Client, now time.Time) {
	if client.Config == nil || client.Config.Transport == nil {
		return
	}
	url := client.Probe().Discovery().RESTClient().Get().AbsPath("/version").URL().String()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	resp, err := (&http.Client{Transport: client.Config.Transport}).Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	theirs, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	switch skew := time.Until(theirs.Add(time.Second / 2)).Round(time.Second); {
	case skew.Abs() < mostSkew:
		c.set(cluster.ClockInStep, cluster.True, "", "", now)
	case skew > 0:
		c.set(cluster.ClockInStep, cluster.False, reasonSkew, fmt.Sprintf("The cluster's clock is %s ahead of ours: set the one that is wrong.", skew), now)
	default:
		c.set(cluster.ClockInStep, cluster.False, reasonSkew, fmt.Sprintf("The cluster's clock is %s behind ours: set the one that is wrong.", -skew), now)
	}
}

// judgeCredentials says when they end. Those that the provider renews before are not spoken of until they have.
func (c *check) judgeCredentials(client *kube.Client, now time.Time) {
	ends, renewed := client.Expires()
	date := ends.UTC().Format(time.DateOnly)
	switch {
	case ends.IsZero():
		c.set(cluster.CredentialsValid, cluster.True, "", "", now)
	case !now.Before(ends):
		c.set(cluster.CredentialsValid, cluster.False, reasonExpired, "The credentials expired on "+date+".", now)
	case !renewed && ends.Sub(now) < expiresSoon:
		c.set(cluster.CredentialsValid, cluster.True, reasonExpiring, "The credentials expire on "+date+": give new ones before.", now)
	default:
		c.set(cluster.CredentialsValid, cluster.True, "", "", now)
	}
}

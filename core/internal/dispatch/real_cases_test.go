package dispatch

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	clusterrow "github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/rig/cluster"
	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
)

// submitSpec submits one version with the whole spec.
func (r *real) submitSpec(spec process.Spec) process.Version {
	r.t.Helper()
	out, _, err := r.db.Submit(r.t.Context(), r.project, []process.NewVersion{{
		ID: newID(), AttemptID: newID(), ProcessID: newID(), ProcessName: "work", SubmittedBy: r.user, BodyHash: "x", Spec: spec,
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return out[0]
}

// clean waits until nothing of the attempts is left, and says so when something is.
func (r *real) clean() {
	r.t.Helper()
	r.when("no Job and no running pod", func() bool { return r.jobs() == 0 && r.alive() == 0 }, nil)
}

func sleeps(seconds string) process.Spec {
	return process.Spec{Image: "busybox", Command: []string{"sleep", seconds}}
}

// must ends the test at an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestRealCases(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Private: true, Specs: []cluster.Spec{{Name: "cases"}}})[0]

	t.Run("B45 faults while one runs and one is submitted", func(t *testing.T) {
		object := http.Header{"Content-Type": {"application/json"}}
		for name, f := range map[string]struct {
			fault   faultproxy.Fault // nil: connections are refused
			flagged bool             // it counts as not reachable
		}{
			"refused":           {nil, true},
			"leader changed":    {faultproxy.Answer(500, object, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: leader changed","code":500}`), true},
			"unavailable":       {faultproxy.Answer(503, object, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"apiserver not ready","reason":"ServiceUnavailable","code":503}`), true},
			"too many requests": {faultproxy.Answer(429, http.Header{"Content-Type": {"text/plain"}, "Retry-After": {"2"}}, "Too many requests, please try again later.\n"), false},
			"GOAWAY": {func(w http.ResponseWriter, _ *http.Request, forward faultproxy.Forward) {
				w.Header().Set("Connection", "close") // over HTTP/2 the server sends GOAWAY for it
				forward(w, nil)
			}, false},
		} {
			t.Run(name, func(t *testing.T) {
				r := newReal(t, c)
				r.start()
				v := r.submitSpec(sleeps("3600"))
				r.state(v, process.Running)
				undo := r.proxy.Refuse
				if f.fault != nil {
					undo = r.proxy.Add(f.fault)
				} else {
					undo()
					undo = func() {
						if err := r.proxy.Restore(); err != nil {
							t.Fatal(err)
						}
					}
				}
				r.proxy.Cut()
				during := r.submitSpec(process.Spec{Image: "busybox", Command: []string{"true"}})
				if f.flagged {
					row := r.until(v, "the flag", func(a process.Attempt) bool { return a.UnreachableSince != nil })
					if row.State != process.Running {
						t.Errorf("state %s while the cluster is away", row.State)
					}
				} else {
					r.until(during, "the submission is taken up", func(a process.Attempt) bool { return a.State != process.Placing })
				}
				undo()
				r.state(during, process.Succeeded)
				row := r.until(v, "no flag", func(a process.Attempt) bool { return a.UnreachableSince == nil })
				if row.State != process.Running {
					t.Errorf("state %s after the outage", row.State)
				}
				r.created(2)
			})
		}
	})

	t.Run("B48 B51 cancel at each instant", func(t *testing.T) {
		suspended := sleeps("3600")
		suspended.QueueName = "nobody-admits"
		pull := sleeps("3600")
		pull.Image = "nagelfluh.test/never-pulled"
		for name, s := range map[string]struct {
			spec   process.Spec
			before func(r *real)
			at     func(a process.Attempt) bool
		}{
			"suspended": {suspended, nil, func(a process.Attempt) bool { return a.ReasonCode == evidence.QueueWaiting }},
			"no pod": {sleeps("3600"), func(r *real) {
				must[*corev1.ResourceQuota](t)(r.set.CoreV1().ResourceQuotas(r.namespace).Create(t.Context(), &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
				}, metav1.CreateOptions{}))
			}, func(a process.Attempt) bool {
				return a.ReasonCode == evidence.PodsRefused && strings.Contains(a.Reason, "exceeded quota")
			}},
			"image pull": {pull, nil, func(a process.Attempt) bool { return a.ReasonCode == evidence.ImagePull }},
			"running":    {sleeps("3600"), nil, func(a process.Attempt) bool { return a.State == process.Running }},
		} {
			t.Run(name, func(t *testing.T) {
				r := newReal(t, c)
				if s.before != nil {
					s.before(r)
				}
				r.start()
				v := r.submitSpec(s.spec)
				r.until(v, name, s.at)
				r.cancel(v)
				r.cancel(v) // a double click
				r.state(v, process.Cancelled)
				r.clean()
				r.created(1)
			})
		}
	})

	t.Run("B50 a finalizer keeps the Job, and the rerun runs", func(t *testing.T) {
		r := newReal(t, c)
		r.options.FinalizerPatience = time.Second
		r.start()
		v := r.submitSpec(sleeps("3600"))
		row := r.state(v, process.Running)
		jobs := r.set.BatchV1().Jobs(r.namespace)
		held := `{"metadata":{"finalizers":["example.com/held"]}}`
		if _, err := jobs.Patch(t.Context(), row.JobName, types.MergePatchType, []byte(held), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // else the namespace stays for ever
			_, _ = jobs.Patch(context.Background(), row.JobName, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		})
		r.cancel(v)
		end := r.state(v, process.Cancelled)
		if !strings.Contains(end.Reason, "example.com/held") || r.alive() != 0 {
			t.Errorf("reason %q, %d pods run", end.Reason, r.alive())
		}
		r.state(r.submitSpec(process.Spec{Image: "busybox", Command: []string{"true"}}), process.Succeeded)
		if j, err := jobs.Get(t.Context(), row.JobName, metav1.GetOptions{}); err != nil || len(j.Finalizers) == 0 {
			t.Errorf("the finalizer was removed: %v", err)
		}
	})

	t.Run("quota of Jobs is waited for", func(t *testing.T) {
		r := newReal(t, c)
		quotas := r.set.CoreV1().ResourceQuotas(r.namespace)
		must[*corev1.ResourceQuota](t)(quotas.Create(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/jobs.batch": resource.MustParse("0")}},
		}, metav1.CreateOptions{}))
		r.when("the quota is in force", func() bool {
			q, err := quotas.Get(t.Context(), "q", metav1.GetOptions{})
			return err == nil && len(q.Status.Hard) == 1
		}, nil)
		r.start()
		v := r.submitSpec(process.Spec{Image: "busybox", Command: []string{"true"}})
		r.until(v, "the quota is said", func(a process.Attempt) bool {
			return a.State == process.Creating && strings.Contains(a.Reason, "exceeded quota")
		})
		if err := quotas.Delete(t.Context(), "q", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.state(v, process.Succeeded)
		r.created(1)
	})

	t.Run("B19 LimitRange refuses the pods", func(t *testing.T) {
		r := newReal(t, c)
		must[*corev1.LimitRange](t)(r.set.CoreV1().LimitRanges(r.namespace).Create(t.Context(), &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": resource.MustParse("100m")},
			}}},
		}, metav1.CreateOptions{}))
		r.start()
		spec := sleeps("3600")
		spec.Limits = map[string]string{"cpu": "2"}
		v := r.submitSpec(spec)
		row := r.until(v, "the refusal", func(a process.Attempt) bool { return a.ReasonCode == evidence.PodsRefused })
		if row.State != process.Queued || !strings.Contains(row.Reason, "maximum cpu usage") {
			t.Errorf("%s: %s", row.State, row.Reason)
		}
		r.cancel(v)
		r.state(v, process.Cancelled)
		r.clean()
	})

	t.Run("RBAC refuses the Job", func(t *testing.T) {
		r := newReal(t, c)
		kubeconfig := r.account()
		registry := kube.NewRegistry(kube.Options{Source: r.db, Connector: connector(kubeconfig), DefaultNamespace: "default"})
		t.Cleanup(func() { r.stop(); registry.Close() })
		r.options.Clients = registry
		r.start()
		end := r.state(r.submitSpec(sleeps("1")), process.Failed)
		if !strings.Contains(end.Reason, `cannot create resource "jobs"`) {
			t.Errorf("reason %q", end.Reason)
		}
		r.created(0)
	})

	t.Run("namespace terminating, then gone", func(t *testing.T) {
		r := newReal(t, c)
		r.start()
		v := r.submitSpec(sleeps("3600"))
		r.state(v, process.Running)
		// What keeps the namespace is ours, so that the test decides when it goes.
		maps := r.set.CoreV1().ConfigMaps(r.namespace)
		must[*corev1.ConfigMap](t)(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "keeps", Finalizers: []string{"example.com/keeps"},
		}}, metav1.CreateOptions{}))
		if err := r.set.CoreV1().Namespaces().Delete(t.Context(), r.namespace, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// What is seen first decides: the Job gone, or its pod killed.
		end := r.until(v, "the end", func(a process.Attempt) bool { return a.State.Terminal() })
		if end.State == process.Succeeded {
			t.Errorf("%s %s: %s", end.State, end.ReasonCode, end.Reason)
		}
		during := r.submitSpec(process.Spec{Image: "busybox", Command: []string{"true"}})
		r.until(during, "the termination is said", func(a process.Attempt) bool {
			return a.State == process.Creating && strings.Contains(a.Reason, "being terminated")
		})
		if _, err := maps.Patch(t.Context(), "keeps", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		r.state(during, process.Succeeded) // in a namespace that was made anew
		r.created(2)
	})

	t.Run("B19 an admission webhook refuses the Job, then the pods", func(t *testing.T) {
		for what, want := range map[string]func(r *real, v process.Version){
			"jobs": func(r *real, v process.Version) {
				end := r.state(v, process.Failed)
				if !strings.Contains(end.Reason, "denied the request: not on a Monday") {
					t.Errorf("reason %q", end.Reason)
				}
				r.created(0)
			},
			"pods": func(r *real, v process.Version) {
				row := r.until(v, "the refusal", func(a process.Attempt) bool { return a.ReasonCode == evidence.PodsRefused })
				if row.State != process.Queued || !strings.Contains(row.Reason, "not on a Monday") {
					t.Errorf("%s: %s", row.State, row.Reason)
				}
				r.cancel(v)
				r.state(v, process.Cancelled)
				r.clean()
			},
		} {
			t.Run(what, func(t *testing.T) {
				r := newReal(t, c)
				r.refuse(what, "not on a Monday")
				r.start()
				want(r, r.submitSpec(sleeps("3600")))
			})
		}
	})

	t.Run("Lease: a copy of the database beside the server", func(t *testing.T) {
		r := newReal(t, c)
		r.options.LeasePeriod = 300 * time.Millisecond
		r.start()
		v := r.submitSpec(sleeps("3600"))
		id := r.state(v, process.Running).ClusterID
		second := copied(r.rig)
		registry := kube.NewRegistry(kube.Options{Source: second.db, Connector: connector(r.proxy.Kubeconfig()), DefaultNamespace: "default"})
		t.Cleanup(func() { second.stop(); registry.Close() })
		second.options.Clients = registry
		epoch := func() string {
			l, err := r.set.CoordinationV1().Leases(r.namespace).Get(t.Context(), leaseName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return l.Annotations[leaseEpoch]
		}
		before := epoch()
		r.when("the Lease moves on", func() bool { return epoch() != before }, nil)

		second.start()
		second.when("the Lease is seen", func() bool { c, err := second.db.Cluster(t.Context(), id); return err == nil && c.Lease != nil }, nil)
		own := second.submit(1)[0]
		second.until(own, "the wait", isHeld)
		second.cancel(v)
		second.until(v, "the wait", isHeld)
		r.state(r.submitSpec(process.Spec{Image: "busybox", Command: []string{"true"}}), process.Succeeded)
		if row := r.attempt(v); row.State != process.Running {
			t.Errorf("the copy stopped it: %s", row.State)
		}
		r.created(2)

		second.confirm(id)
		second.state(v, process.Cancelled)
		second.state(own, process.Succeeded)
		r.when("the first server stops", func() bool { return r.d.fleet.worker(id).fenceOf(r.namespace).state == leaseForeign }, nil)
		r.until(r.submitSpec(sleeps("1")), "the wait", isHeld)
		r.created(3)
	})

	t.Run("B43 etcd wiped: nothing is taken as gone", func(t *testing.T) {
		r := newReal(t, c)
		r.identify()
		r.start()
		v := r.submitSpec(sleeps("3600"))
		r.state(v, process.Running)
		if err := c.StopAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(filepath.Dir(c.AuditLog), "etcd")); err != nil {
			t.Fatal(err)
		}
		if err := c.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		row := r.until(v, "that it is another cluster", func(a process.Attempt) bool { return a.ReasonCode == reasonClusterChanged })
		if row.State.Terminal() {
			t.Errorf("state %s", row.State)
		}
	})
}

// refuse has an admission webhook refuse every Job or pod of the namespace.
func (r *real) refuse(what, message string) {
	r.t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: message}}
		_ = json.NewEncoder(w).Encode(review)
	}))
	r.t.Cleanup(hook.Close)
	group := map[string]string{"jobs": "batch", "pods": ""}[what]
	hooks := r.set.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := hooks.Create(r.t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: r.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: what + ".example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionregistrationv1.SideEffectClassNone),
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": r.namespace}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: new(hook.URL), CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{what}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = hooks.Delete(context.Background(), r.namespace, metav1.DeleteOptions{}) })
	// It is in force a moment later.
	r.when("the webhook answers", func() bool {
		probe := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		meta := metav1.ObjectMeta{GenerateName: "probe-"}
		pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		var err error
		if what == "jobs" {
			_, err = r.set.BatchV1().Jobs(r.namespace).Create(context.Background(), &batchv1.Job{
				ObjectMeta: meta, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: pod}},
			}, probe)
		} else {
			_, err = r.set.CoreV1().Pods(r.namespace).Create(context.Background(), &corev1.Pod{ObjectMeta: meta, Spec: pod}, probe)
		}
		return err != nil && strings.Contains(err.Error(), message)
	}, nil)
}

// identify stores the cluster's identity, as the health monitor does.
func (r *real) identify() {
	r.t.Helper()
	ns, err := r.set.CoreV1().Namespaces().Get(r.t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	clusters, err := r.db.Clusters(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, c := range clusters {
		if c.ID == clusterrow.DefaultID {
			continue
		}
		c.Observed.Identity = string(ns.UID)
		if err := r.db.Observe(r.t.Context(), c.ID, c.Observed); err != nil {
			r.t.Fatal(err)
		}
	}
}

// account returns a kubeconfig, past the proxy, of the namespace's own ServiceAccount, which may do nothing.
func (r *real) account() []byte {
	r.t.Helper()
	token, err := tokenFor(r.t.Context(), r.set, r.namespace)
	if err != nil {
		r.t.Fatal(err)
	}
	raw, err := r.c.Kubeconfig()
	if err != nil {
		r.t.Fatal(err)
	}
	config, err := clientcmd.Load(raw)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token, user.ClientCertificateData, user.ClientKeyData = token, nil, nil
	}
	out, err := clientcmd.Write(*config)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func tokenFor(ctx context.Context, set kubernetes.Interface, namespace string) (string, error) {
	answer, err := set.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err == nil && answer.Status.Token == "" {
		err = errors.New("no token came")
	}
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

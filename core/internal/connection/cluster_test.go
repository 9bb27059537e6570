package connection

import (
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	authn "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/permission"
	devcluster "github.com/nagelfluh/nagelfluh/rig/cluster"
)

// world is a real cluster with a namespace of the test's own.
type world struct {
	dev       *devcluster.Cluster
	admin     *kubernetes.Clientset
	rest      *rest.Config
	namespace string
}

func newWorld(t *testing.T, o devcluster.Options) world {
	t.Helper()
	w := world{dev: devcluster.Start(t, o)[0]}
	w.namespace = devcluster.Namespace(t, w.dev)
	var err error
	if w.admin, err = w.dev.Client(); err != nil {
		t.Fatal(err)
	}
	if w.rest, err = w.dev.RESTConfig(); err != nil {
		t.Fatal(err)
	}
	return w
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func (w world) kubeconfig(user string) []byte { return config(w.rest.Host, w.rest.CAData, user) }

// account makes a ServiceAccount with rules in the namespace and returns the user of a kubeconfig.
func (w world) account(t *testing.T, name string, rules []rbac.PolicyRule) string {
	t.Helper()
	ctx, meta := soon(t), metav1.ObjectMeta{Name: name}
	_, err := w.admin.CoreV1().ServiceAccounts(w.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = w.admin.RbacV1().Roles(w.namespace).Create(ctx, &rbac.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = w.admin.RbacV1().RoleBindings(w.namespace).Create(ctx, &rbac.RoleBinding{
			ObjectMeta: meta, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: name},
			Subjects: []rbac.Subject{{Kind: "ServiceAccount", Name: name, Namespace: w.namespace}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return w.token(t, name)
}

func (w world) token(t *testing.T, account string) string {
	t.Helper()
	answer, err := w.admin.CoreV1().ServiceAccounts(w.namespace).CreateToken(soon(t), account, &authn.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return bearer(answer.Status.Token)
}

// try tests until the authorizer knows the rules, which its cache may take a moment for.
func (w world) try(t *testing.T, kubeconfig []byte, settled func(cluster.Report) bool) cluster.Report {
	t.Helper()
	tester := newTester(t, gives(kubeconfig), func(o *Options) { o.MakesNamespaces = true })
	var r cluster.Report
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		r = tester.Test(t.Context(), cluster.Cluster{Namespace: w.namespace})
		if settled(r) || time.Now().After(deadline) {
			return show(t, r)
		}
	}
}

func passes(r cluster.Report) bool { return r.OK }

// namespaced are the rules of the table for the job namespace that keep selects.
func namespaced(keep func(permission.Rule, string) bool) (out []rbac.PolicyRule) {
	for _, r := range permission.Table() {
		for _, verb := range r.Verbs {
			if r.Scope == permission.JobNamespace && r.Need != permission.Optional && keep(r, verb) {
				out = append(out, rbac.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: []string{verb}})
			}
		}
	}
	return out
}

func TestB16RealRBAC(t *testing.T) {
	w := newWorld(t, devcluster.Options{})
	namespace, err := w.admin.CoreV1().Namespaces().Get(soon(t), w.namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	system, err := w.admin.CoreV1().Namespaces().Get(soon(t), metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("administrator", func(t *testing.T) {
		kubeconfig, err := w.dev.Kubeconfig()
		if err != nil {
			t.Fatal(err)
		}
		r := w.try(t, kubeconfig, passes)
		if !r.OK || r.Identity != string(system.UID) || r.User == "" || !strings.HasPrefix(r.Version, "v1.") || r.Capacity == nil || r.Capacity.Nodes == 0 || r.Kueue == nil || r.Kueue.Installed {
			t.Errorf("%+v", r)
		}
		missing := newTester(t, gives(kubeconfig), func(o *Options) { o.MakesNamespaces = true }).Test(t.Context(), cluster.Cluster{Namespace: "not-there"})
		if !missing.OK || !strings.Contains(strings.Join(missing.Warnings, " "), "not-there does not exist") {
			t.Errorf("a namespace to be made: %+v", missing)
		}
	})
	t.Run("bound to the namespace", func(t *testing.T) {
		rules := append(namespaced(func(permission.Rule, string) bool { return true }), rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
		r := w.try(t, w.kubeconfig(w.account(t, "bound", rules)), func(r cluster.Report) bool { return r.OK && r.Identity != "" })
		if !r.OK || r.User != "system:serviceaccount:"+w.namespace+":bound" || r.Identity != string(namespace.UID) || r.Capacity != nil || r.ExpiresAt == nil {
			t.Errorf("%+v", r)
		}
		for _, p := range r.Permissions {
			if p.Required && p.Allowed != "yes" {
				t.Errorf("%+v", p)
			}
			if p.Resource == "nodes" && p.Allowed != "no" {
				t.Errorf("%+v", p)
			}
		}
	})
	t.Run("without logs", func(t *testing.T) {
		rules := namespaced(func(r permission.Rule, _ string) bool { return r.Resource != "pods/log" })
		r := w.try(t, w.kubeconfig(w.account(t, "no-logs", rules)), passes)
		if !r.OK || !strings.Contains(strings.Join(r.Warnings, " "), "Logs will not be available") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("read-only", func(t *testing.T) {
		rules := namespaced(func(_ permission.Rule, verb string) bool { return verb == "get" || verb == "list" || verb == "watch" })
		r := w.try(t, w.kubeconfig(w.account(t, "reader", rules)), func(r cluster.Report) bool { return strings.Contains(r.Message, "nor 1 other") })
		if r.OK || r.Class != string(kube.Permissions) || !strings.Contains(r.Message, "cannot create jobs in "+w.namespace) {
			t.Errorf("%+v", r)
		}
	})
	for name, user := range map[string]string{"anonymous": "", "unknown token": token("no-such-token")} { // B15
		t.Run(name, func(t *testing.T) {
			r := test(t, w.kubeconfig(user))
			if r.OK || r.Class != string(kube.Credentials) || r.HTTPStatus != 401 && r.HTTPStatus != 403 {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Run("unknown authority", func(t *testing.T) {
		if r := test(t, config(w.rest.Host, newAuthority(t, "Another CA").pem(), token("t"))); r.Class != string(kube.TLS) || last(r) != "tls" {
			t.Errorf("%+v", r)
		}
	})
	for _, resource := range []string{"jobs", "pods", "secrets", "leases"} {
		if n, err := w.dev.Created(resource, w.namespace); err != nil || n != 0 {
			t.Errorf("%d %s were made by tests that make nothing, %v", n, resource, err)
		}
	}
}

// What the documentation says to apply gives all that the table asks for.
func TestDocumentedManifests(t *testing.T) {
	w := newWorld(t, devcluster.Options{})
	page, err := os.ReadFile("../../../docs/operations/permissions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("the page has no manifests")
	}
	text = strings.ReplaceAll(text, "nagelfluh-jobs", w.namespace)
	text = regexp.MustCompile(`\bname: nagelfluh\b`).ReplaceAllString(text, "name: "+w.namespace)
	ctx := soon(t)
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var raw runtime.RawExtension
		if err := documents.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		switch o := object.(type) {
		case *corev1.Namespace: // the test's own
		case *corev1.ServiceAccount:
			_, err = w.admin.CoreV1().ServiceAccounts(w.namespace).Create(ctx, o, metav1.CreateOptions{})
		case *corev1.Secret:
			_, err = w.admin.CoreV1().Secrets(w.namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbac.Role:
			_, err = w.admin.RbacV1().Roles(w.namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbac.RoleBinding:
			_, err = w.admin.RbacV1().RoleBindings(w.namespace).Create(ctx, o, metav1.CreateOptions{})
		case *rbac.ClusterRole:
			_, err = w.admin.RbacV1().ClusterRoles().Create(ctx, o, metav1.CreateOptions{})
			t.Cleanup(func() {
				_ = w.admin.RbacV1().ClusterRoles().Delete(context.Background(), o.Name, metav1.DeleteOptions{})
			})
		case *rbac.ClusterRoleBinding:
			_, err = w.admin.RbacV1().ClusterRoleBindings().Create(ctx, o, metav1.CreateOptions{})
			t.Cleanup(func() {
				_ = w.admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), o.Name, metav1.DeleteOptions{})
			})
		default:
			t.Fatalf("%T", object)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all := func(r cluster.Report) bool {
		for _, p := range r.Permissions {
			if p.Allowed != "yes" && p.Resource != "serviceaccounts/token" {
				return false
			}
		}
		return r.OK
	}
	if r := w.try(t, w.kubeconfig(w.token(t, w.namespace)), all); !all(r) || len(r.Permissions) == 0 || r.Capacity == nil {
		t.Errorf("%+v", r)
	}
}

func TestRealQueues(t *testing.T) {
	w := newWorld(t, devcluster.Options{Kueue: true})
	devcluster.LocalQueue(t, w.dev, w.namespace, "fast")
	kubeconfig, err := w.dev.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	tester := newTester(t, gives(kubeconfig))
	r := show(t, tester.Test(t.Context(), cluster.Cluster{Namespace: w.namespace, QueueName: "fast"}))
	if !r.OK || r.Kueue == nil || !r.Kueue.Installed || len(r.Kueue.Queues) != 1 || !r.Kueue.Queues[0].Active || r.Kueue.Queues[0].ClusterQueue != "default" {
		t.Errorf("%+v, kueue %+v", r, r.Kueue)
	}
	if r := show(t, tester.Test(t.Context(), cluster.Cluster{Namespace: w.namespace, QueueName: "slow"})); r.OK || r.Class != string(kube.NotFound) {
		t.Errorf("%+v", r)
	}
}

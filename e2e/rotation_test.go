package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
)

// 500 running attempts, each with its log followed, while the credentials of their cluster change 20 times; the old ones
// are really taken away. Half-way the API server starts anew with another token file. No attempt changes its state, and
// within seconds of each change no stream and no request has an old token.
func TestRotationUnderLoad(t *testing.T) {
	const attempts, rotations = 500, 20
	w := newWorld(t, nil)
	r := newRotation(t, w)
	r.rotate(r.account()) // and to the proxy

	items := make([]map[string]any, attempts)
	for i := range items {
		items[i] = onGPU(submission(fmt.Sprintf("long-%03d", i), 0, "sleep", "3600"))
	}
	resp, err := w.Do(w.ctx, http.MethodPost, "/projects/default/processes/bulk", map[string]any{"items": items})
	if err != nil || resp.Status != http.StatusCreated {
		t.Fatalf("submit: %v, status %d: %s", err, resp.Status, head(resp.Body))
	}
	before := map[string]version{}
	w.until("every attempt runs", 4*minute, func() (bool, error) {
		all, err := w.versions()
		if err != nil {
			return false, err
		}
		clear(before)
		for _, v := range all {
			if v.State == "running" {
				before[v.ID] = v
			}
		}
		return len(before) == attempts, fmt.Errorf("%d of %d run", len(before), attempts)
	})
	w.until("every log is followed", minute, func() (bool, error) {
		n := len(r.streams())
		return n >= attempts+2, fmt.Errorf("%d streams are open, %d wanted", n, attempts+2)
	})
	changes := w.stateChanges()

	for i := range rotations {
		switch {
		case i == rotations/2:
			r.restart()
		case i%5 == 4: // the old token is gone before the new one comes
			next := r.account()
			r.revoke()
			r.rotate(next)
		default:
			next := r.account()
			r.rotate(next)
			r.revoke()
		}
	}
	w.until("every log is followed again", minute, func() (bool, error) {
		n := len(r.streams())
		return n >= attempts+2, fmt.Errorf("%d streams are open, %d wanted", n, attempts+2)
	})
	r.check()

	for _, e := range changes() {
		if _, ours := before[e.VersionID]; ours {
			t.Errorf("%s became %s: %s", before[e.VersionID].ProcessName, e.State, e.Message)
		}
	}
	all, err := w.versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range all {
		if was := before[v.ID]; v.State != "running" || v.Attempt.ID != was.Attempt.ID || v.Attempt.JobUID != was.Attempt.JobUID {
			t.Errorf("%s is %s: %s", v.ProcessName, v.State, v.Attempt.Reason)
		}
	}
	// And work goes on there: a submission, its log, a cancellation.
	after := w.submit(onGPU(submission("after", 0, "echo", "still here")))
	w.until("a new job succeeds", minute, func() (bool, error) { return w.get(after.ID).State == "succeeded", nil })
	if log, err := w.CLI(w.ctx, "logs", after.ID); err != nil || !strings.Contains(log, "still here") {
		t.Errorf("its log is %q, %v", log, err)
	}
	if resp, err := w.Do(w.ctx, http.MethodPost, "/versions/"+all[0].ID+"/cancel", nil); err != nil || resp.Status/100 != 2 {
		t.Errorf("cancel: %v, status %d: %s", err, resp.Status, head(resp.Body))
	}
	w.until("one is cancelled", minute, func() (bool, error) { return w.get(all[0].ID).State == "cancelled", nil })
}

// onGPU asks for cluster gpu.
func onGPU(body map[string]any) map[string]any {
	body["spec"].(map[string]any)["cluster"] = "gpu"
	return body
}

// rotation changes the credentials of cluster gpu, which is reached through a proxy that sees them.
type rotation struct {
	t     *testing.T
	w     *world
	proxy *faultproxy.Proxy
	n     int
	now   string // the token in use
	from  int    // requests seen before it was in use everywhere
	// secrets are those to which tokens are bound that still work; the last is of the newest token.
	secrets []string
}

func newRotation(t *testing.T, w *world) *rotation {
	t.Helper()
	raw, err := os.ReadFile(clusters.Kubeconfig("gpu"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rotation{t: t, w: w}
	if r.proxy, err = faultproxy.New(raw); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.proxy.Close)
	c := w.client("gpu")
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nagelfluh"}}
	if _, err := c.CoreV1().ServiceAccounts(w.namespace).Create(w.ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: w.namespace + "-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "nagelfluh", Namespace: w.namespace}},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(w.ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// account asks for a token of the account, bound to a Secret, with which it ends.
func (r *rotation) account() string {
	r.t.Helper()
	c := r.w.client("gpu").CoreV1()
	r.n++
	name := fmt.Sprintf("token-%d", r.n)
	if _, err := c.Secrets(r.w.namespace).Create(r.w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	seconds := int64(3600)
	got, err := c.ServiceAccounts(r.w.namespace).CreateToken(r.w.ctx, "nagelfluh", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &seconds, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Secret", APIVersion: "v1", Name: name},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.secrets = append(r.secrets, name)
	return got.Status.Token
}

// revoke takes all tokens of the account away but the newest.
func (r *rotation) revoke() {
	r.t.Helper()
	for ; len(r.secrets) > 1; r.secrets = r.secrets[1:] {
		if err := r.w.client("gpu").CoreV1().Secrets(r.w.namespace).Delete(r.w.ctx, r.secrets[0], metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// restart starts the API server anew with a token file that has one more token, and changes to that.
func (r *rotation) restart() {
	r.t.Helper()
	dir := filepath.Dir(clusters.Kubeconfig("gpu"))
	path, token := filepath.Join(dir, "pki", "tokens.csv"), "static-"+r.w.namespace
	text, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	text = append(text, token+`,nagelfluh,99,"system:masters"`+"\n"...)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	for _, action := range []string{"stop-apiserver", "start-apiserver"} {
		cmd := exec.CommandContext(r.w.ctx, filepath.Join(root, "bin", "devcluster"), action, "gpu", "--dir", filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			r.t.Fatalf("%s: %v\n%s", action, err, out)
		}
	}
	r.rotate(token)
}

// rotate gives the cluster another token and waits until every stream has it.
func (r *rotation) rotate(token string) {
	r.t.Helper()
	r.check()
	config, err := clientcmd.Load(r.proxy.Kubeconfig())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Token = token
	}
	path := filepath.Join(r.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		r.t.Fatal(err)
	}
	// While the API server comes back, the test of the new connection may fail: then the edit is refused.
	r.w.until("the edit is taken", minute, func() (bool, error) {
		_, err := r.w.CLI(r.w.ctx, "clusters", "edit", "gpu", "--kubeconfig", path)
		return err == nil, err
	})
	r.w.until("both watches are open and no stream has an old token", 20*time.Second, func() (bool, error) {
		watches, old := 0, 0
		for _, s := range r.streams() {
			switch {
			case s.Authorization != "Bearer "+token:
				old++
			case strings.Contains(s.Path, "watch=true"):
				watches++
			}
		}
		return watches >= 2 && old == 0, fmt.Errorf("%d watches with the new token, %d streams with another", watches, old)
	})
	r.now, r.from = token, len(r.proxy.Requests())
}

// check holds that nothing but the token in use has been used since it was in use everywhere.
func (r *rotation) check() {
	r.t.Helper()
	for _, q := range r.proxy.Requests()[r.from:] {
		if q.Authorization != "Bearer "+r.now {
			r.t.Errorf("%s %s had another token than the one in use", q.Method, q.Path)
		}
	}
}

// streams are the watches and logs that are open, or asked for.
func (r *rotation) streams() []faultproxy.Request {
	var out []faultproxy.Request
	for _, q := range r.proxy.Open() {
		if path, _, _ := strings.Cut(q.Path, "?"); strings.Contains(q.Path, "watch=true") || strings.HasSuffix(path, "/log") {
			out = append(out, q)
		}
	}
	return out
}

// stateChange is an event that tells of another state.
type stateChange struct {
	VersionID string `json:"version_id"`
	State     string
	Message   string
}

// stateChanges listens from now on; the function ends that and returns what was heard.
func (w *world) stateChanges() func() []stateChange {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.ctx, http.MethodGet, w.URL+"/api/v1/events?project=default", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("listen to the events: status %d", resp.StatusCode)
	}
	var heard []stateChange
	var reader sync.WaitGroup
	reader.Go(func() {
		kind := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				kind = name
			}
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && kind == "state" {
				var e stateChange
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					w.t.Errorf("event %s: %v", data, err)
				}
				heard = append(heard, e)
			}
		}
	})
	return func() []stateChange {
		_ = resp.Body.Close()
		reader.Wait()
		return heard
	}
}

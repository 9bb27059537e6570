package connection

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authz "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

var quiet = log.New(io.Discard, "", 0)

func backendOf(a *api) func() (*rest.Config, error) {
	return func() (*rest.Config, error) {
		return &rest.Config{Host: a.URL, BearerToken: mark + "good", TLSClientConfig: rest.TLSClientConfig{CAData: a.ca()}}, nil
	}
}

func TestWhole(t *testing.T) {
	a := newAPI(t, func(a *api) {
		a.answers["/apis/kueue.x-k8s.io"] = map[string]any{"kind": "APIGroup", "preferredVersion": map[string]string{"groupVersion": "kueue.x-k8s.io/v1beta2"}}
		queue := func(name, active string) map[string]any {
			return map[string]any{"metadata": map[string]string{"name": name}, "spec": map[string]string{"clusterQueue": "all"},
				"status": map[string]any{"conditions": []map[string]string{{"type": "Active", "status": active, "message": "as told"}}}}
		}
		a.answers["/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues"] = map[string]any{"items": []any{queue("fast", "True"), queue("held", "False")}}
	})
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	tester := newTester(t, func(context.Context, cluster.Cluster) (kube.Connection, error) {
		return kube.Connection{Kubeconfig: config(a.URL, a.ca(), token("good")), ExpiresAt: expires}, nil
	})
	r := show(t, tester.Test(t.Context(), cluster.Cluster{QueueName: "fast"}))
	if !r.OK || r.Class != "" || r.Remedy != "" || r.Server != a.URL || r.Namespace != "team-a" || r.Version != "v1.37.2" || r.User != "worker" || r.Identity != "uid-of-kube-system" {
		t.Errorf("%+v", r)
	}
	if r.ExpiresAt == nil || !r.ExpiresAt.Equal(expires) || r.LatencyMS == nil || *r.LatencyMS <= 0 || r.SkewSeconds == nil || *r.SkewSeconds != 0 {
		t.Errorf("expires %v, latency %v, skew %v", r.ExpiresAt, r.LatencyMS, r.SkewSeconds)
	}
	var phases []string
	for _, p := range r.Phases {
		phases = append(phases, p.Name)
		if !p.OK {
			t.Errorf("phase %+v", p)
		}
	}
	if got := strings.Join(phases, " "); got != "provider policy connect tls http credentials permissions" {
		t.Errorf("phases %s", got)
	}
	if r.Capacity == nil || r.Capacity.Resources["nvidia.com/gpu"].Total != 8 || r.Capacity.Resources["cpu"].Free != 4000 {
		t.Errorf("capacity %+v", r.Capacity)
	}
	if k := r.Kueue; k == nil || !k.Installed || k.Message != "" || len(k.Queues) != 2 || !k.Queues[0].Active || k.Queues[1].Active || k.Queues[1].Message != "as told" {
		t.Errorf("kueue %+v", k)
	}
	for _, p := range r.Permissions {
		if p.Allowed != "yes" || p.Lost == "" {
			t.Errorf("permission %+v", p)
		}
	}
	a.mu.Lock()
	for _, path := range a.posts {
		if !strings.HasSuffix(path, "reviews") {
			t.Errorf("the test wrote to %s", path)
		}
	}
	a.mu.Unlock()

	if r := show(t, tester.Test(t.Context(), cluster.Cluster{QueueName: "held"})); !r.OK || !strings.Contains(strings.Join(r.Warnings, " "), "held is not active") {
		t.Errorf("a queue that is held: %+v", r)
	}
	if r := show(t, tester.Test(t.Context(), cluster.Cluster{QueueName: "none"})); r.OK || !strings.Contains(r.Message, "The queue none does not exist") {
		t.Errorf("a queue that is not there: %+v", r)
	}
}

func TestNoKueueForTheQueue(t *testing.T) {
	a := newAPI(t)
	tester := newTester(t, gives(config(a.URL, a.ca(), token("good"))))
	if r := tester.Test(t.Context(), cluster.Cluster{QueueName: "fast"}); r.OK || r.Class != string(kube.NotFound) || !strings.Contains(r.Message, "Kueue is not installed") {
		t.Errorf("%+v", r)
	}
	if r := tester.Test(t.Context(), cluster.Cluster{}); !r.OK || r.Kueue == nil || r.Kueue.Installed {
		t.Errorf("no queue wanted: %+v", r)
	}
}

// The address of the server's own machine is warned of, and refusal says what it means; an API that happens to listen
// there is not taken for the user's without the warning.
func TestB07LoopbackAddress(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := closed.Addr().String()
	_ = closed.Close()
	r := test(t, config("https://"+refusing, nil, token("t")))
	if r.Class != string(kube.Refused) || !strings.Contains(r.Remedy, "the machine that Nagelfluh runs on") || len(r.Warnings) == 0 {
		t.Errorf("%+v", r)
	}
	a := newAPI(t)
	if r := test(t, config(a.URL, a.ca(), token("good"))); !r.OK || !strings.Contains(strings.Join(r.Warnings, " "), "the machine that Nagelfluh runs on") {
		t.Errorf("another API there: %+v", r)
	}
}

// B08: found without the network; a matter of credentials, not of reach.
func TestB08ClientCertificateExpired(t *testing.T) {
	ca := newAuthority(t, "CA")
	var mu sync.Mutex
	dialled := 0
	l := listen(t, nil, func(net.Conn) { mu.Lock(); dialled++; mu.Unlock() })
	yesterday := time.Now().Add(-72 * time.Hour)
	old := ca.issue(t, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = yesterday.Add(-time.Hour), yesterday })
	r := test(t, config("https://"+l.Addr().String(), ca.pem(), userCert(t, old)))
	if r.OK || r.Class != string(kube.Credentials) || last(r) != "policy" || !strings.Contains(r.Message, "expired on "+yesterday.UTC().Format(time.DateOnly)) {
		t.Errorf("%+v", r)
	}
	mu.Lock()
	if dialled != 0 {
		t.Errorf("%d connections", dialled)
	}
	mu.Unlock()

	soon := time.Now().Add(5 * 24 * time.Hour)
	a := newAPI(t)
	user := userCert(t, ca.issue(t, func(c *x509.Certificate) { c.NotAfter = soon })) + ", " + token("good")
	r = test(t, config(a.URL, a.ca(), user))
	if !r.OK || !strings.Contains(strings.Join(r.Warnings, " "), "expires on "+soon.UTC().Format(time.DateOnly)) || r.ExpiresAt == nil || r.ExpiresAt.Sub(soon).Abs() > 2*time.Second {
		t.Errorf("in five days: %+v", r)
	}
}

func TestTokenExpiry(t *testing.T) {
	a := newAPI(t)
	claims, err := json.Marshal(map[string]int64{"exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	part := base64.RawURLEncoding.EncodeToString
	r := test(t, config(a.URL, a.ca(), token("x."+part(claims)+".x")))
	if r.Class != string(kube.Credentials) || r.ExpiresAt == nil || time.Until(*r.ExpiresAt) > time.Hour {
		t.Errorf("%+v", r)
	}
}

func TestClockSkew(t *testing.T) {
	a := newAPI(t, func(a *api) { a.behind = 5 * time.Minute })
	r := test(t, config(a.URL, a.ca(), token("good")))
	if !r.OK || r.SkewSeconds == nil || *r.SkewSeconds > -290 || *r.SkewSeconds < -310 || !strings.Contains(strings.Join(r.Warnings, " "), "behind ours") {
		t.Errorf("skew %v, %+v", r.SkewSeconds, r)
	}
}

// B13: dead clusters end at their limit, name the phase, and do not wait for one another.
func TestB13DeadClustersDoNotWaitForEachOther(t *testing.T) {
	ca := newAuthority(t, "CA")
	cert := ca.issue(t)
	const clusters = 10
	var mu sync.Mutex
	arrived := 0
	all := make(chan struct{}) // closed when every test has reached its dead cluster
	note := func(net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		if arrived++; arrived == clusters {
			close(all)
		}
	}
	kinds := []struct {
		l     net.Listener
		phase string
	}{
		{listen(t, nil, note), "tls"},
		{listen(t, &cert, note), "http"},
		{listen(t, &cert, func(c net.Conn) { answerHalf(c); note(c) }), "http"},
	}
	// Were one to wait for another, they would never all be at it: no phase ends before.
	ctx, giveUp := context.WithTimeout(t.Context(), 2*time.Minute)
	defer giveUp()
	tester := newTester(t, func(_ context.Context, c cluster.Cluster) (kube.Connection, error) {
		return kube.Connection{Kubeconfig: config(c.Name, ca.pem(), token("t"))}, nil
	}, func(o *Options) { o.Phase, o.Total = 5*time.Second, 30*time.Second })
	reports := make([]cluster.Report, clusters)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range clusters {
		wg.Go(func() {
			reports[i] = tester.Test(ctx, cluster.Cluster{Name: "https://" + kinds[i%len(kinds)].l.Addr().String()})
		})
	}
	wg.Wait()
	select {
	case <-all:
	default:
		t.Errorf("%d of %d tests reached their cluster", arrived, clusters)
	}
	if took := time.Since(began); took > clusters*5*time.Second/2 {
		t.Errorf("ten tests took %s, each of them at most 5 s", took)
	}
	for i, r := range reports {
		if r.OK || r.Class != string(kube.Timeout) || last(r) != kinds[i%len(kinds)].phase {
			t.Errorf("%d: %q in phase %q: %s", i, r.Class, last(r), r.Message)
		}
	}
}

// A caller who leaves ends the test at once, wherever it is.
func TestB13LeavingCancels(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	l := listen(t, nil, func(net.Conn) { leave() })
	r := newTester(t, gives(config("https://"+l.Addr().String(), nil, token("t"))), func(o *Options) { o.Phase, o.Total = time.Hour, time.Hour }).
		Test(ctx, cluster.Cluster{})
	if r.OK || r.Class != string(kube.Canceled) {
		t.Errorf("%+v", r)
	}
}

// B15: reached is not known. What everybody may read proves nothing.
func TestB15ReachableButNotAuthenticated(t *testing.T) {
	users := map[string]string{"empty user": "", "wrong token": token("bad"), "token of another cluster": token("other")}
	for _, anonymous := range []bool{false, true} {
		a := newAPI(t, func(a *api) { a.anonymous = anonymous })
		configs := map[string][]byte{"no user": fmt.Appendf(nil,
			"clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]\ncontexts: [{name: x, context: {cluster: c}}]",
			a.URL, base64.StdEncoding.EncodeToString(a.ca()))}
		for name, user := range users {
			configs[name] = config(a.URL, a.ca(), user)
		}
		code := http.StatusUnauthorized
		if anonymous {
			code = http.StatusForbidden
		}
		for name, kubeconfig := range configs {
			t.Run(fmt.Sprintf("%d %s", code, name), func(t *testing.T) {
				r := test(t, kubeconfig)
				if r.OK || r.Class != string(kube.Credentials) || r.HTTPStatus != code || last(r) != "credentials" || r.Version != "v1.37.2" ||
					!strings.Contains(r.Message, fmt.Sprintf("HTTP %d", code)) {
					t.Errorf("%+v", r)
				}
				if r.Phases[len(r.Phases)-2].Name != "http" || !r.Phases[len(r.Phases)-2].OK {
					t.Errorf("reached is not told: %+v", r.Phases)
				}
			})
		}
	}
}

func TestB16LimitedPermissions(t *testing.T) {
	// namespaced is what an account that is bound to one namespace may do.
	namespaced := func(at authz.ResourceAttributes) bool {
		return at.Namespace == "team-a" && (at.Resource == "jobs" && at.Group == "batch" || at.Resource == "pods" && at.Verb != "create")
	}
	readOnly := func(at authz.ResourceAttributes) bool {
		return at.Verb == "get" || at.Verb == "list" || at.Verb == "watch"
	}
	noLogs := func(at authz.ResourceAttributes) bool { return at.Subresource != "log" }
	run := func(t *testing.T, change func(*api)) cluster.Report {
		a := newAPI(t, change)
		return test(t, config(a.URL, a.ca(), token("good")))
	}
	t.Run("(1) bound to a namespace", func(t *testing.T) {
		r := run(t, func(a *api) { a.allowed = namespaced })
		if !r.OK || r.Namespace != "team-a" || r.Identity != "" || r.Capacity != nil {
			t.Errorf("%+v", r)
		}
	})
	t.Run("(2) read-only", func(t *testing.T) {
		r := run(t, func(a *api) { a.allowed = readOnly })
		if r.OK || r.Class != string(kube.Permissions) || last(r) != "permissions" || !strings.Contains(r.Message, "cannot create jobs in team-a") || r.Capacity == nil {
			t.Errorf("%+v", r)
		}
	})
	t.Run("(3) all but logs", func(t *testing.T) {
		r := run(t, func(a *api) { a.allowed = noLogs })
		if !r.OK || len(r.Warnings) != 2 || !strings.Contains(r.Warnings[1], "ogs will not be available") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("(4) may not ask", func(t *testing.T) {
		r := run(t, func(a *api) { a.reviews = false })
		if !r.OK || r.User != "worker" || !strings.Contains(r.Message, "could not be checked") {
			t.Errorf("%+v", r)
		}
		for _, p := range r.Permissions {
			want := "unknown"
			if p.Required && p.Verb == "list" && (p.Resource == "jobs" || p.Resource == "pods") {
				want = "yes" // tried
			}
			if p.Allowed != want {
				t.Errorf("%s %s: %s", p.Verb, p.Resource, p.Allowed)
			}
		}
	})
	t.Run("(4) an old cluster, or one that reads alone lead to", func(t *testing.T) {
		r := run(t, func(a *api) { a.plain = true })
		if !r.OK || !strings.Contains(r.Message, "could not be checked") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("(4) may not ask, and may not list jobs", func(t *testing.T) {
		r := run(t, func(a *api) {
			a.reviews = false
			a.allowed = func(at authz.ResourceAttributes) bool { return at.Resource != "jobs" }
		})
		if r.OK || r.Class != string(kube.Permissions) || !strings.Contains(r.Message, "cannot list jobs in team-a") {
			t.Errorf("%+v", r)
		}
	})
}

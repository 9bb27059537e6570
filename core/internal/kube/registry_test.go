package kube

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

func ping(c *Client) error {
	_, err := c.Clientset.Discovery().ServerVersion()
	return err
}

// ended waits until a client says that it was replaced.
func ended(t *testing.T, c *Client) {
	t.Helper()
	select {
	case <-c.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the client is not closed")
	}
}

func TestGetConnectsOnceForAll(t *testing.T) {
	a := newAPI(t, version)
	release := make(chan struct{})
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) {
		<-release
		return Connection{Kubeconfig: a.kubeconfig("t")}, nil
	})
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Minute })
	var wg sync.WaitGroup
	var clients sync.Map
	for range 50 {
		wg.Go(func() {
			c, err := r.Get(t.Context(), "c1")
			if err != nil {
				t.Error(err)
				return
			}
			clients.Store(c, true)
		})
	}
	close(release)
	wg.Wait()
	count := 0
	clients.Range(func(any, any) bool { count++; return true })
	if n := w.connects.Load(); n != 1 || count != 1 {
		t.Errorf("%d connects, %d clients; want 1 and 1", n, count)
	}
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if c.Namespace != "jobs" || c.ClusterID != "c1" {
		t.Errorf("client of %s in %s", c.ClusterID, c.Namespace)
	}
	if err := ping(c); err != nil {
		t.Error(err)
	}
}

// B53: a cluster whose provider hangs keeps nobody else waiting, and a caller leaves when it wants to.
func TestHungProviderBlocksOnlyItsCluster(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(func(ctx context.Context, c cluster.Cluster) (Connection, error) {
		if c.ID == "hung" {
			<-ctx.Done()
			return Connection{}, ctx.Err()
		}
		return Connection{Kubeconfig: a.kubeconfig("t")}, nil
	})
	w.rows["hung"] = cluster.Cluster{ID: "hung"}
	r := newTestRegistry(t, w)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := r.Get(ctx, "hung")
		left <- err
	}()
	if _, err := r.Get(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the caller's own end", err)
	}
}

func TestFailureIsRememberedBriefly(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(fails("no such machine"))
	r := newTestRegistry(t, w)
	for range 5 {
		_, err := r.Get(t.Context(), "c1")
		var connect *ConnectError
		if !errors.As(err, &connect) || !strings.Contains(err.Error(), "no such machine") || Classify(err) != Provider {
			t.Fatalf("got %v", err)
		}
	}
	if n := w.connects.Load(); n != 1 {
		t.Errorf("the provider was asked %d times within the back-off", n)
	}
	w.answer(gives(a.kubeconfig("t")))
	r.Changed("c1") // an edit is tried at once
	eventually(t, "connected after the edit", func() bool {
		c, err := r.Get(t.Context(), "c1")
		return err == nil && ping(c) == nil
	})
}

func TestPolicyRefusesWhatAProviderGives(t *testing.T) {
	w := newWorld(gives([]byte("clusters: [{name: c, cluster: {server: \"https://h\"}}]\nusers: [{name: u, user: {exec: {command: sh}}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]")))
	r := newTestRegistry(t, w)
	_, err := r.Get(t.Context(), "c1")
	if err == nil || !strings.Contains(err.Error(), "users[0].user.exec") {
		t.Errorf("got %v, want the refusal of exec (B05)", err)
	}
}

// B52: an edited token is used by every call, without a new client.
func TestB52EditedTokenIsSwapped(t *testing.T) {
	a := newAPI(t, version)
	a.allow("old", "new")
	w := newWorld(gives(a.kubeconfig("old")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c); err != nil {
		t.Fatal(err)
	}
	w.answer(gives(a.kubeconfig("new")))
	w.change("c1", func(c *cluster.Cluster) { c.ConfigRevision++ })
	again, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if again != c {
		t.Error("a new token made a new client")
	}
	a.allow("new")
	if err := ping(c); err != nil {
		t.Errorf("the old client has not the new token: %v", err)
	}
	select {
	case <-c.Done():
		t.Error("the client was closed")
	default:
	}
}

// A changed endpoint or namespace replaces the client; the old one says so.
func TestB52MovedClusterIsReplaced(t *testing.T) {
	a, b := newAPI(t, version), newAPI(t, version)
	w := newWorld(gives(a.kubeconfig("t")))
	r := newTestRegistry(t, w)
	first, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	w.answer(gives(b.kubeconfig("t")))
	w.change("c1", func(c *cluster.Cluster) { c.ConfigRevision++ })
	second, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	ended(t, first)
	if first == second || second.Server() != b.URL {
		t.Errorf("server is %s, want %s", second.Server(), b.URL)
	}
	if err := ping(first); err != nil {
		t.Errorf("a call on the old client within its grace: %v", err)
	}
	w.change("c1", func(c *cluster.Cluster) { c.Namespace = "team-a" })
	third, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	ended(t, second)
	if third.Namespace != "team-a" {
		t.Errorf("namespace %s", third.Namespace)
	}
}

// A rejected token makes the provider asked once, and the call goes on with what it gives.
func TestB52RejectedTokenAsksOnce(t *testing.T) {
	a := newAPI(t, version)
	a.allow("new")
	given := make(chan string, 10)
	given <- "old"
	given <- "new"
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) {
		select {
		case token := <-given:
			return Connection{Kubeconfig: a.kubeconfig(token)}, nil
		default:
			return Connection{Kubeconfig: a.kubeconfig("new")}, nil
		}
	})
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Minute })
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c); err != nil {
		t.Fatalf("not healed: %v", err)
	}
	if n := w.connects.Load(); n != 2 {
		t.Errorf("%d connects, want 2", n)
	}
	a.allow() // nothing is known any more: the provider is not asked again and again
	for range 5 {
		if err := ping(c); Classify(err) != Credentials {
			t.Fatalf("got %v, want credentials", err)
		}
	}
	if n := w.connects.Load(); n > 3 {
		t.Errorf("%d connects after rejections", n)
	}
}

func TestB52ExpiringTokenIsRenewed(t *testing.T) {
	a := newAPI(t, version)
	var n atomic.Int32
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) {
		if n.Add(1) == 1 {
			return Connection{Kubeconfig: a.kubeconfig("first"), ExpiresAt: time.Now().Add(time.Hour)}, nil
		}
		return Connection{Kubeconfig: a.kubeconfig("second"), ExpiresAt: time.Now().Add(time.Hour)}, nil
	})
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Minute })
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	postpone(c.link, time.Now().Add(-time.Second)) // as if the time had come
	eventually(t, "the second token is used", func() bool {
		if err := ping(c); err != nil {
			t.Fatal(err)
		}
		seen := a.requests()
		return seen[len(seen)-1] == "Bearer second"
	})
	if got := n.Load(); got != 2 {
		t.Errorf("%d connects, want 2", got)
	}
	select {
	case <-c.Done():
		t.Error("a renewal replaced the client")
	default:
	}
}

func TestRenewal(t *testing.T) {
	now := time.Now()
	for life, want := range map[time.Duration]time.Duration{
		time.Hour: 55 * time.Minute, time.Minute: 48 * time.Second, time.Second: 10 * time.Second, -time.Hour: 10 * time.Second,
	} {
		if got := renewal(now, now.Add(life)).Sub(now); got != want {
			t.Errorf("life %s: renewal after %s, want %s", life, got, want)
		}
	}
	if !renewal(now, time.Time{}).IsZero() {
		t.Error("credentials that do not end are renewed")
	}
}

func TestReplacementConfigIsStored(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) {
		return Connection{Kubeconfig: a.kubeconfig("t"), ReplacementConfig: []byte(`{"a":1}`)}, nil
	})
	r := newTestRegistry(t, w, func(o *Options) {
		o.StoreConfig = func(_ context.Context, id string, revision int64, config []byte) (int64, error) {
			w.change(id, func(c *cluster.Cluster) { c.ProviderConfig = config; c.ConfigRevision++ })
			return revision + 1, nil
		}
	})
	for range 5 {
		if _, err := r.Get(t.Context(), "c1"); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.connects.Load(); n != 1 {
		t.Errorf("%d connects: the stored replacement was taken for an edit", n)
	}
}

func TestUnknownAndRemovedCluster(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(gives(a.kubeconfig("t")))
	r := newTestRegistry(t, w)
	if _, err := r.Get(t.Context(), "nobody"); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	delete(w.rows, "c1")
	w.mu.Unlock()
	if _, err := r.Get(t.Context(), "c1"); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	ended(t, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.slots) != 0 {
		t.Errorf("%d slots are left", len(r.slots))
	}
}

func TestSourceBlipKeepsTheClient(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(gives(a.kubeconfig("t")))
	r := newTestRegistry(t, w)
	if _, err := r.Get(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.err = errors.New("database is away")
	w.mu.Unlock()
	if _, err := r.Get(t.Context(), "c1"); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestCloseAndDrop(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(gives(a.kubeconfig("t")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	r.Drop("c1")
	r.Drop("c1")
	ended(t, c)
	c, err = r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	r.Close()
	if err := ping(c); !errors.Is(err, ErrReplaced) {
		t.Errorf("a call after Close: %v", err)
	}
	if _, err := r.Get(t.Context(), "c1"); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	other := newAPI(t, version)
	a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/steal", http.StatusFound)
	})
	w := newWorld(gives(a.kubeconfig("t")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c); Classify(err) != NotKubernetes {
		t.Errorf("got %v", err)
	}
	if seen := other.requests(); len(seen) != 0 {
		t.Error("the redirect was followed, token and all")
	}
}

func TestDialPolicyHolds(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(gives([]byte(strings.Replace(string(a.kubeconfig("t")), "127.0.0.1", "169.254.169.254", 1))))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c); Classify(err) != Denied {
		t.Errorf("got %v", err)
	}
}

func TestEnvironmentProxyIsUsedOnlyWhenAllowed(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	for _, allowed := range []bool{false, true} {
		l, err := newLink("c", target{endpoint: endpoint{server: "https://cluster.example"}, creds: &credentials{}}, nil, allowed, nil)
		if err != nil {
			t.Fatal(err)
		}
		if set := l.current.Load().base.Proxy != nil; set != allowed {
			t.Errorf("allowed %t: a proxy is set: %t", allowed, set)
		}
	}
}

func TestBackendEnvironment(t *testing.T) {
	a := newAPI(t, version)
	a.allow("backend")
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) { return Connection{Backend: true}, nil })
	r := newTestRegistry(t, w, func(o *Options) {
		o.Backend = func() (*rest.Config, error) {
			return &rest.Config{Host: a.URL, BearerToken: "backend", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, nil
		}
	})
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c); err != nil {
		t.Error(err)
	}
}

// The observer learns verb, resource and code, and no name.
func TestObserver(t *testing.T) {
	a := newAPI(t, func(w http.ResponseWriter, r *http.Request) { status(w, 404, "NotFound", "jobs \"x\" not found") })
	var mu sync.Mutex
	var calls []Call
	w := newWorld(gives(a.kubeconfig("t")))
	r := newTestRegistry(t, w, func(o *Options) {
		o.Observer = observe(func(c Call) { mu.Lock(); defer mu.Unlock(); calls = append(calls, c) })
	})
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Clientset.BatchV1().Jobs("n").Get(t.Context(), "x", metav1.GetOptions{})
	if Classify(err) != NotFound {
		t.Errorf("got %v", err)
	}
	if len(calls) != 1 || calls[0].Verb != "get" || calls[0].Resource != "jobs" || calls[0].Code != 404 || calls[0].ClusterID != "c1" {
		t.Errorf("calls %+v", calls)
	}
}

type observe func(Call)

func (f observe) Observe(c Call) { f(c) }

func TestCheckAddr(t *testing.T) {
	allowed := []string{"127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "8.8.8.8", "2606:4700::1", "fd12::1", "::ffff:10.0.0.1", "64:ff9b::8.8.8.8"}
	denied := []string{
		"0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255", "100.100.100.200", "168.63.129.16",
		"192.0.0.192", "::", "fe80::1", "fe80::1%eth0", "ff02::1", "fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "::ffff:0:169.254.169.254",
		"::169.254.169.254", "64:ff9b::169.254.169.254", "64:ff9b:1::169.254.169.254", "2002:a9fe:a9fe::1", "2001:0:1:2:3:4:5601:5601",
	}
	for _, s := range allowed {
		if err := checkAddr(netip.MustParseAddr(s), nil); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, s := range denied {
		if err := checkAddr(netip.MustParseAddr(s), nil); !errors.Is(err, ErrDenied) {
			t.Errorf("%s is allowed (%v)", s, err)
		}
	}
	if err := checkAddr(netip.MustParseAddr("169.254.10.1"), []netip.Prefix{netip.MustParsePrefix("169.254.10.0/24")}); err != nil {
		t.Errorf("the operator's exemption does not hold: %v", err)
	}
}

// Health checks pass where the work has to wait, and a call that waited in vain was never sent.
func TestRateLimit(t *testing.T) {
	a := newAPI(t, version)
	r := newTestRegistry(t, newWorld(gives(a.kubeconfig("t"))), func(o *Options) { o.QPS, o.Burst = 0.01, 1 })
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	sent := len(a.requests())
	_, err = c.Clientset.BatchV1().Jobs("n").Get(ctx, "x", metav1.GetOptions{})
	if Classify(err) != Throttled || Reached(err) || MayHaveHappened(err) || len(a.requests()) != sent {
		t.Errorf("%q: %v", Classify(err), err)
	}
	if _, err := c.Probe().Discovery().ServerVersion(); err != nil {
		t.Errorf("the probe has to wait: %v", err)
	}
}

// A new client certificate needs connections of its own; tokens share them.
func TestSwapOfCertificateMakesNewConnections(t *testing.T) {
	l, err := newLink("c", target{endpoint: endpoint{server: "https://cluster.example"}, creds: &credentials{token: "a"}}, nil, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := l.current.Load()
	if err := l.swap(&credentials{token: "b"}, false); err != nil {
		t.Fatal(err)
	}
	if second := l.current.Load(); second.base != first.base || second.creds.token != "b" {
		t.Error("a new token made a new transport")
	}
	if err := l.swap(&credentials{certSum: [32]byte{1}}, false); err != nil {
		t.Fatal(err)
	}
	if l.current.Load().base == first.base {
		t.Error("a new certificate uses the old connections")
	}
	l.close(0)
}

// A provider that fails when its token was rejected is not asked at every look at the row.
func TestFailedRenewalIsNotRepeatedAtOnce(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(gives(a.kubeconfig("t")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	a.allow()
	w.answer(fails("away"))
	for range 10 {
		if err := ping(c); Classify(err) != Credentials {
			t.Fatalf("got %v", err)
		}
		if again, err := r.Get(t.Context(), "c1"); err != nil || again != c {
			t.Fatalf("got another client, %v", err)
		}
	}
	if n := w.connects.Load(); n != 2 {
		t.Errorf("%d connects, want the first and one more", n)
	}
}

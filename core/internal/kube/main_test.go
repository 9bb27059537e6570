package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

func TestMain(m *testing.M) {
	if os.Getenv(stubEnv) != "" {
		serveStub()
		return
	}
	goleak.VerifyTestMain(m)
}

// api is an API server as far as a test needs one: TLS, tokens, and answers that the test sets.
type api struct {
	*httptest.Server
	mu      sync.Mutex
	tokens  map[string]bool // that are known; nil: all are
	seen    []string        // tokens of requests, in their order
	conns   map[net.Conn]bool
	handler http.HandlerFunc
}

func newAPI(t *testing.T, handler http.HandlerFunc) *api {
	t.Helper()
	a := &api{handler: handler, conns: map[net.Conn]bool{}}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.EnableHTTP2 = true
	a.Config.ConnState = func(c net.Conn, s http.ConnState) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if s == http.StateClosed {
			delete(a.conns, c)
		} else {
			a.conns[c] = true
		}
	}
	a.StartTLS()
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	token := r.Header.Get("Authorization")
	a.mu.Lock()
	a.seen = append(a.seen, token)
	known := a.tokens == nil || a.tokens[token]
	handler := a.handler
	a.mu.Unlock()
	if !known {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	handler(w, r)
}

func (a *api) allow(tokens ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens = map[string]bool{}
	for _, t := range tokens {
		a.tokens["Bearer "+t] = true
	}
}

func (a *api) requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.seen...)
}

// open is how many connections there are.
func (a *api) open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.conns)
}

// kubeconfig leads to the server with a token.
func (a *api) kubeconfig(token string) []byte {
	return a.kubeconfigOf(fmt.Sprintf("token: %q", token))
}

// kubeconfigOf leads to the server with whatever a user may have.
func (a *api) kubeconfigOf(user string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	return []byte(fmt.Sprintf(`
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]`, a.URL, base64.StdEncoding.EncodeToString(ca), user))
}

func status(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code,
	})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func version(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
}

// world is a Source and a Connector that a test can change.
type world struct {
	mu       sync.Mutex
	rows     map[string]cluster.Cluster
	connect  func(ctx context.Context, c cluster.Cluster) (Connection, error)
	connects atomic.Int32
	err      error  // of the source
	looked   func() // at each look at a row; may be nil
}

func newWorld(connect func(context.Context, cluster.Cluster) (Connection, error)) *world {
	return &world{connect: connect, rows: map[string]cluster.Cluster{"c1": {ID: "c1", Type: "kubeconfig", ConfigRevision: 1}}}
}

func (w *world) Cluster(_ context.Context, id string) (cluster.Cluster, error) {
	w.mu.Lock()
	looked := w.looked
	w.mu.Unlock()
	if looked != nil {
		looked()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return cluster.Cluster{}, w.err
	}
	c, there := w.rows[id]
	if !there {
		return c, fmt.Errorf("read: %w", cluster.ErrNotFound)
	}
	return c, nil
}

func (w *world) Connect(ctx context.Context, c cluster.Cluster) (Connection, error) {
	w.connects.Add(1)
	w.mu.Lock()
	connect := w.connect
	w.mu.Unlock()
	return connect(ctx, c)
}

func (w *world) change(id string, f func(*cluster.Cluster)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.rows[id]
	f(&c)
	w.rows[id] = c
}

func (w *world) answer(connect func(context.Context, cluster.Cluster) (Connection, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connect = connect
}

func gives(kubeconfig []byte) func(context.Context, cluster.Cluster) (Connection, error) {
	return func(context.Context, cluster.Cluster) (Connection, error) {
		return Connection{Kubeconfig: kubeconfig}, nil
	}
}

func fails(text string) func(context.Context, cluster.Cluster) (Connection, error) {
	return func(context.Context, cluster.Cluster) (Connection, error) {
		return Connection{}, errors.New(text)
	}
}

func newTestRegistry(t *testing.T, w *world, change ...func(*Options)) *Registry {
	t.Helper()
	o := Options{Source: w, Connector: w, DefaultNamespace: "jobs", Recheck: 1}
	for _, f := range change {
		f(&o)
	}
	r := NewRegistry(o)
	t.Cleanup(r.Close)
	return r
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	eventuallyIn(t, 30*time.Second, what, holds)
}

func eventuallyIn(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

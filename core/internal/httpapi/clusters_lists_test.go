package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/connection"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// listener counts connections and answers nothing.
type counting struct {
	net.Listener
	n atomic.Int64
}

func listenCounting(t *testing.T) *counting {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{Listener: l}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.n.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return c
}

// connector leads every cluster to an address of its own and counts how often it is asked.
type connector struct {
	address func(name string) string
	n       atomic.Int64
}

func (c *connector) Connect(_ context.Context, row cluster.Cluster) (kube.Connection, error) {
	c.n.Add(1)
	return kube.Connection{Kubeconfig: fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://%s"}}]
users: [{name: u, user: {token: t}}]
`, c.address(row.Name))}, nil
}

// Lists and details are answered from what is stored, however many clusters do not answer.
func TestB13ListsOf200ClustersMakeNoCall(t *testing.T) {
	w := newWorld(t)
	alive := listenCounting(t)
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	c := &connector{address: func(name string) string {
		if strings.HasPrefix(name, "dead") {
			return closed.Addr().String()
		}
		return alive.Addr().String()
	}}
	registry := kube.NewRegistry(kube.Options{Source: w.db, Connector: c})
	defer registry.Close()
	w.tester = connection.New(connection.Options{Connector: c, Clients: registry})
	w.twoHundred()

	began := time.Now()
	for range 5 {
		list := must[struct{ Items []struct{ ID string } }](w, w.do("GET", clusters, nil), 200)
		if len(list.Items) != 201 {
			t.Fatalf("%d clusters", len(list.Items))
		}
		for _, id := range []string{list.Items[0].ID, "alive-001", "dead-001", "dead-049"} {
			must[object](w, w.do("GET", clusters+"/"+id, nil), 200)
		}
		must[object](w, w.do("GET", "/api/v1/projects/default/clusters", nil), 200)
		must[object](w, w.do("GET", "/api/v1/versions?project=default", nil), 200)
		must[object](w, w.do("GET", "/readyz", nil), 200)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("40 answers took %s", took)
	}
	if calls, dials := c.n.Load(), alive.n.Load(); calls != 0 || dials != 0 {
		t.Errorf("%d calls of the provider, %d connections", calls, dials)
	}
	// The counters do count.
	if r := must[cluster.Report](w, w.do("POST", clusters+"/alive-001/test-connection", object{}), 200); r.OK {
		t.Errorf("got %+v", r)
	}
	if c.n.Load() == 0 || alive.n.Load() == 0 {
		t.Errorf("a test made %d calls of the provider and %d connections", c.n.Load(), alive.n.Load())
	}
}

// twoHundred adds 200 clusters of which 50 are lost.
func (w *world) twoHundred() {
	w.t.Helper()
	for i := range 200 {
		name, o := fmt.Sprintf("alive-%03d", i), cluster.Observed{Health: cluster.Ready, Version: "v1.37.2", CheckedAt: time.Now().UTC()}
		if i >= 150 {
			at := time.Now().Add(-time.Hour).UTC()
			name, o = fmt.Sprintf("dead-%03d", i-150), cluster.Observed{Health: cluster.Lost, Reason: "refused", Message: "no answer", Unreachable: &at}
		}
		c, err := w.db.CreateCluster(w.t.Context(), cluster.Cluster{
			Name: name, Type: "fake", ProviderConfig: json.RawMessage(`{"token":"t"}`), Active: true, Labels: map[string]string{"zone": "a"},
		})
		if err == nil {
			err = w.db.Observe(w.t.Context(), c.ID, o)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

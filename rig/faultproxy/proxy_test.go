package faultproxy

import (
	"bufio"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// target counts what reaches it; /stream sends a line each time tick fires.
type target struct {
	hits  atomic.Int32
	paths chan string // of what reached it, in order
	tick  chan string
}

func (s *target) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.hits.Add(1)
	s.paths <- r.URL.Path
	if r.URL.Path != "/stream" {
		fmt.Fprintf(w, "%s %s", r.Method, r.Header.Get("Authorization"))
		return
	}
	_ = http.NewResponseController(w).Flush()
	for {
		select {
		case line := <-s.tick:
			fmt.Fprintln(w, line)
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func start(t *testing.T) (*Proxy, *target, *http.Client, string) {
	t.Helper()
	s := &target{tick: make(chan string), paths: make(chan string, 100)}
	backend := httptest.NewUnstartedServer(s)
	backend.EnableHTTP2 = true
	backend.StartTLS()
	t.Cleanup(backend.Close)
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: backend.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	raw, err := clientcmd.Write(*c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	cfg, err := clientcmd.RESTConfigFromKubeConfig(p.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return p, s, client, cfg.Host
}

func get(t *testing.T, c *http.Client, url string, limit time.Duration) (int, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestForwardsWithCredentials(t *testing.T) {
	p, _, c, host := start(t)
	status, body, err := get(t, c, host+"/a?b=c", 5*time.Second)
	if err != nil || status != 200 || body != "GET Bearer secret" {
		t.Fatalf("status %d, %q, %v", status, body, err)
	}
	if p.Count("GET", `^/a\?b=c$`) != 1 || p.Count("POST", "") != 0 {
		t.Errorf("counted %+v", p.Requests())
	}
}

func TestFaultsOfOneRequest(t *testing.T) {
	for name, f := range map[string]struct {
		fault  Fault
		status int // 0: an error
		hits   int32
	}{
		"answer": {Answer(503, nil, "no"), 503, 0},
		"gone":   {Gone(), 410, 0},
		"drop":   {Drop(), 0, 0},
		"lose":   {LoseAnswer(), 0, 1},
		"cut":    {CutAfter(3), 0, 1},
		"delay":  {Delay(time.Millisecond), 200, 1},
		"hang":   {Hang(), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, s, c, host := start(t)
			// A broken connection is tried again by the transport when the call is safe to repeat: twice breaks that too.
			undo := p.Add(f.fault, On("GET", "^/x"))
			status, _, err := get(t, c, host+"/x", time.Second)
			if (f.status == 0) != (err != nil) || status != f.status && f.status != 0 {
				t.Errorf("status %d, error %v", status, err)
			}
			if f.hits == 0 && s.hits.Load() != 0 || f.hits > 0 && s.hits.Load() == 0 {
				t.Errorf("the target saw %d requests", s.hits.Load())
			}
			undo()
			if status, _, err := get(t, c, host+"/x", 5*time.Second); status != 200 {
				t.Errorf("after undo: status %d, %v", status, err)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	p, _, c, host := start(t)
	p.Add(Answer(500, nil, ""), Times(2))
	for i, want := range []int{500, 500, 200} {
		if status, _, err := get(t, c, host, 5*time.Second); status != want {
			t.Errorf("request %d: status %d, %v", i, status, err)
		}
	}
}

func TestFreezeHoldsOpenStreamsToo(t *testing.T) {
	p, s, c, host := start(t)
	resp, err := c.Get(host + "/stream") //nolint:bodyclose // it is closed; the linter is misled by the goroutine that reads
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := make(chan string)
	go func() {
		defer close(lines)
		for sc := bufio.NewScanner(resp.Body); sc.Scan(); {
			lines <- sc.Text()
		}
	}()
	s.tick <- "one"
	if got := <-lines; got != "one" {
		t.Fatal(got)
	}
	p.Freeze()
	s.tick <- "two" // the target goes on
	if _, _, err := get(t, c, host, 200*time.Millisecond); err == nil {
		t.Error("a frozen proxy answered")
	}
	select {
	case got := <-lines:
		t.Errorf("a frozen stream gave %q", got)
	default:
	}
	p.Thaw()
	if got := <-lines; got != "two" {
		t.Errorf("after the thaw: %q", got)
	}
	p.Cut()
	if _, open := <-lines; open {
		t.Error("a cut stream goes on")
	}
}

func TestRefuseAndRestore(t *testing.T) {
	p, _, c, host := start(t)
	p.Refuse()
	if _, _, err := get(t, c, host, time.Second); err == nil {
		t.Error("a refusing proxy answered")
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	if status, _, err := get(t, c, host, 5*time.Second); status != 200 {
		t.Errorf("restored: status %d, %v", status, err)
	}
}

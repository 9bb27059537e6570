package kube

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// house is an API server with an empty namespace. A stream on it stays open and mute when its token is taken away, as an
// API server's does.
type house struct {
	*api
	mu      sync.Mutex
	streams map[string]int // open ones by token
	opened  int
	lists   int
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{streams: map[string]int{}}
	h.api = newAPI(t, h.answer)
	return h
}

func (h *house) answer(w http.ResponseWriter, r *http.Request) {
	lists := map[string]string{"jobs": `{"kind":"JobList","apiVersion":"batch/v1","metadata":{"resourceVersion":"7"},"items":[]}`,
		"pods": `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`}
	kind := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	switch {
	case r.URL.Query().Get("watch") != "", kind == "log":
		token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		h.count(func() { h.streams[token]++; h.opened++ })
		defer h.count(func() { h.streams[token]-- })
		w.Header().Set("Content-Type", "application/json")
		switch kind { // a watch that brings nothing and ends within a second is taken for broken
		case "log":
			_, _ = io.WriteString(w, token+"\n")
		case "jobs":
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"Job","apiVersion":"batch/v1","metadata":{"resourceVersion":"8"}}}`+"\n")
		case "pods":
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"8"}}}`+"\n")
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case r.Method == http.MethodGet && lists[kind] != "":
		h.count(func() { h.lists++ })
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, lists[kind])
	case r.URL.Path == "/version":
		version(w, r)
	default:
		answer(w, batchv1.Job{TypeMeta: metav1.TypeMeta{Kind: "Job", APIVersion: "batch/v1"}})
	}
}

func (h *house) count(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// on is how many streams are open with a token.
func (h *house) on(token string) (n int) {
	h.count(func() { n = h.streams[token] })
	return n
}

func (h *house) totals() (opened, lists int) {
	h.count(func() { opened, lists = h.opened, h.lists })
	return opened, lists
}

// followLog follows a log that is opened again whenever it breaks, as the log keeper does.
func followLog(t *testing.T, r *Registry) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		for ctx.Err() == nil {
			c, err := r.Get(ctx, "c1")
			if err != nil {
				continue
			}
			log, err := c.Logs(ctx, "pod", "main", &corev1.PodLogOptions{Follow: true})
			if err != nil {
				sleep(ctx, 10*time.Millisecond)
				continue
			}
			if _, err = io.Copy(io.Discard, log); err == nil && ctx.Err() == nil {
				t.Error("a log that was cut was taken for whole")
			}
			_ = log.Close()
		}
	})
}

// streaming starts both watches and a log, and waits until they are open with a token.
func streaming(t *testing.T, r *Registry, h *house, token string) *watched {
	t.Helper()
	w := runWatch(t, func(ctx context.Context) (*Client, error) { return r.Get(ctx, "c1") })
	followLog(t, r)
	eventually(t, "all streams are open", func() bool { return h.on(token) == 3 })
	return w
}

// work calls in every way that work does.
func work(t *testing.T, r *Registry) {
	t.Helper()
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	jobs := c.Clientset.BatchV1().Jobs("jobs")
	_, created := jobs.Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}, metav1.CreateOptions{})
	_, got := jobs.Get(t.Context(), "j", metav1.GetOptions{})
	_, probed := c.Probe().Discovery().ServerVersion()
	deleted := jobs.Delete(t.Context(), "j", metav1.DeleteOptions{})
	if err := errors.Join(created, got, probed, deleted); err != nil {
		t.Fatal(err)
	}
}

func edit(w *world, r *Registry, kubeconfig []byte) {
	w.answer(gives(kubeconfig))
	w.change("c1", func(c *cluster.Cluster) { c.ConfigRevision++ })
	r.Changed("c1")
}

// A new token, then a new address: calls, watches and logs all move within seconds, nothing uses the old one any more,
// the watches go on where they were, and the old connections are closed.
func TestB52EditMovesEverything(t *testing.T) {
	a, b := newHouse(t), newHouse(t)
	w := newWorld(gives(a.kubeconfig("old")))
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Minute })
	streaming(t, r, a, "old")
	work(t, r)

	edit(w, r, a.kubeconfig("new"))
	eventuallyIn(t, 10*time.Second, "all streams have the new token", func() bool { return a.on("new") == 3 && a.on("old") == 0 })
	a.allow("new")
	from := len(a.requests())
	work(t, r)
	for _, token := range a.requests()[from:] {
		if token != "Bearer new" {
			t.Errorf("a request with %q after the edit", token)
		}
	}
	if _, lists := a.totals(); lists != 2 {
		t.Errorf("%d lists: the watches did not go on where they were", lists)
	}

	edit(w, r, b.kubeconfig("new"))
	eventuallyIn(t, 10*time.Second, "all streams have moved", func() bool { return b.on("new") == 3 && a.on("new") == 0 })
	from = len(a.requests())
	work(t, r)
	eventuallyIn(t, 10*time.Second, "the old client is closed", func() bool { return a.open() == 0 })
	if n := len(a.requests()) - from; n != 0 {
		t.Errorf("%d requests to the old address", n)
	}
}

// A provider whose tokens last a minute: each is used, and no stream is broken for it.
func TestB52TokenEveryMinuteDropsNothing(t *testing.T) {
	a := newHouse(t)
	n := 0
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) { // one at a time
		n++
		return Connection{Kubeconfig: a.kubeconfig(fmt.Sprintf("token-%d", n)), ExpiresAt: time.Now().Add(time.Minute)}, nil
	})
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Minute })
	streaming(t, r, a, "token-1")
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	for i := 2; i < 32; i++ {
		postpone(c.link, time.Now()) // the minute is about to end
		want := fmt.Sprintf("Bearer token-%d", i)
		eventually(t, "the next token is used", func() bool {
			if err := ping(c); err != nil {
				t.Fatal(err)
			}
			seen := a.requests()
			return seen[len(seen)-1] == want
		})
	}
	if opened, lists := a.totals(); opened != 3 || lists != 2 || a.on("token-1") != 3 {
		t.Errorf("%d streams opened, %d lists, %d of the first still open; want 3, 2, 3", opened, lists, a.on("token-1"))
	}
	if conns, connects := a.open(), w.connects.Load(); conns != 1 || connects != 31 {
		t.Errorf("%d connections, %d connects; want 1 and 31", conns, connects)
	}
	if again, err := r.Get(t.Context(), "c1"); err != nil || again != c {
		t.Errorf("another client was made: %v", err)
	}
}

// A configuration that gives no connection leaves the working one alone, says so, and is tried again by itself.
func TestB52BrokenEditKeepsTheFormerClient(t *testing.T) {
	hung := make(chan struct{})
	broken := map[string]func(context.Context, cluster.Cluster) (Connection, error){
		"the provider refuses": fails("no such machine"),
		"no kubeconfig":        gives([]byte("not: [a kubeconfig")),
		"the policy refuses":   gives([]byte("clusters: [{name: c, cluster: {server: \"http://h\"}}]\nusers: [{name: u, user: {token: x}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]")),
		"the provider hangs": func(ctx context.Context, _ cluster.Cluster) (Connection, error) {
			select {
			case <-hung:
			case <-ctx.Done():
			}
			return Connection{}, errors.New("was away")
		},
	}
	for name, connect := range broken {
		t.Run(name, func(t *testing.T) {
			a := newHouse(t)
			w := newWorld(gives(a.kubeconfig("old")))
			r := newTestRegistry(t, w)
			streaming(t, r, a, "old")
			c, err := r.Get(t.Context(), "c1")
			if err != nil || c.Stale() != nil {
				t.Fatal(err, c.Stale())
			}
			opened, _ := a.totals()

			w.answer(connect)
			w.change("c1", func(c *cluster.Cluster) { c.ConfigRevision++ })
			r.Changed("c1")
			if name == "the provider hangs" {
				work(t, r) // while it does
				close(hung)
			}
			eventually(t, "the failure is told", func() bool { return c.Stale() != nil })
			var connectErr *ConnectError
			if err := c.Stale(); !errors.As(err, &connectErr) || Classify(err) != Provider {
				t.Errorf("told %v", err)
			}
			asked := w.connects.Load()
			for range 20 {
				if again, err := r.Get(t.Context(), "c1"); err != nil || again != c {
					t.Fatalf("the working client is not given any more: %v", err)
				}
				work(t, r)
			}
			if now := w.connects.Load(); now > asked+1 {
				t.Errorf("the provider was asked %d times within the back-off", now-asked)
			}
			if again, _ := a.totals(); again != opened || a.on("old") != 3 {
				t.Error("streams were cut")
			}

			w.answer(gives(a.kubeconfig("new")))
			r.Changed("c1")
			eventually(t, "mended", func() bool { return c.Stale() == nil && a.on("new") == 3 && a.on("old") == 0 })
			work(t, r)
		})
	}
}

// The provider comes back without anybody's doing.
func TestB52BrokenEditIsTriedAgain(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(gives(a.kubeconfig("old")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	w.answer(fails("away"))
	w.change("c1", func(c *cluster.Cluster) { c.ConfigRevision++ })
	r.Changed("c1")
	eventually(t, "the failure is told", func() bool { return c.Stale() != nil })
	w.answer(gives(a.kubeconfig("new")))
	eventually(t, "mended", func() bool {
		_, err := r.Get(t.Context(), "c1")
		return err == nil && c.Stale() == nil && c.link.current.Load().creds.token == "new"
	})
}

// A hundred calls, watches and logs are rejected at once: the provider is asked once, and all go on.
func TestB52HundredRejectionsOneRefresh(t *testing.T) {
	a := newHouse(t)
	inner := a.handler
	var late sync.WaitGroup
	late.Add(100)
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer old" && r.URL.Path != "/version" {
			late.Done()
			late.Wait()
			status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			return
		}
		inner(w, r)
	}
	w := newWorld(gives(a.kubeconfig("old")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	w.answer(gives(a.kubeconfig("new")))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	jobs := c.Clientset.BatchV1().Jobs("jobs")
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			var err error
			switch i % 3 {
			case 0:
				_, err = jobs.Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}}, metav1.CreateOptions{}) // has a body
			case 1:
				stream, openErr := jobs.Watch(ctx, metav1.ListOptions{})
				if err = openErr; err == nil {
					stream.Stop()
				}
			default:
				log, openErr := c.Logs(ctx, "pod", "main", &corev1.PodLogOptions{Follow: true})
				if err = openErr; err == nil {
					line, _ := bufio.NewReader(log).ReadString('\n')
					if line != "new\n" {
						t.Errorf("a log gave %q", line)
					}
					_ = log.Close()
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := w.connects.Load(); n != 2 {
		t.Errorf("%d connects, want the first and one more", n)
	}
}

// A rejection that comes while the row is just being looked at is not answered by that look.
func TestB52RejectionDuringALook(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(gives(a.kubeconfig("old")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	looking, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.mu.Lock()
	w.looked = func() { once.Do(func() { close(looking); <-release }) }
	w.mu.Unlock()
	r.Changed("c1")
	<-looking
	a.allow("new")
	w.answer(gives(a.kubeconfig("new")))
	healed := make(chan error, 1)
	go func() { healed <- ping(c) }()
	eventually(t, "rejected", func() bool { return len(a.requests()) == 1 })
	close(release)
	if err := <-healed; err != nil {
		t.Error(err)
	}
}

// Rejected credentials take their streams with them: they may be open and mute.
func TestB52RejectionMovesStreams(t *testing.T) {
	a := newHouse(t)
	w := newWorld(gives(a.kubeconfig("old")))
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Minute })
	streaming(t, r, a, "old")
	a.allow("new")
	w.answer(gives(a.kubeconfig("new")))
	work(t, r)
	eventually(t, "the streams have moved", func() bool { return a.on("new") == 3 && a.on("old") == 0 })
}

// An edit that comes while the row before it is being connected to is not lost, although nobody asks again.
func TestB52EditDuringAnAttempt(t *testing.T) {
	a := newHouse(t)
	connecting, release := make(chan struct{}), make(chan struct{})
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) {
		close(connecting)
		<-release
		return Connection{Kubeconfig: a.kubeconfig("old")}, nil
	})
	r := newTestRegistry(t, w, func(o *Options) { o.Recheck = time.Hour })
	got := make(chan *Client, 1)
	go func() {
		c, err := r.Get(t.Context(), "c1")
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	<-connecting
	edit(w, r, a.kubeconfig("new"))
	close(release)
	c := <-got
	eventually(t, "the edit is in use", func() bool { return c.link.current.Load().creds.token == "new" })
}

// The headers of a silent container's log come with its first line, so the request hangs for hours: it moves as well.
func TestB52SilentLogMoves(t *testing.T) {
	speak := make(chan struct{})
	a := newAPI(t, nil)
	a.handler = func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-speak:
			_, _ = io.WriteString(w, "hello\n")
		case <-r.Context().Done():
		}
	}
	w := newWorld(gives(a.kubeconfig("old")))
	r := newTestRegistry(t, w)
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 1)
	go func() {
		log, err := c.Logs(t.Context(), "pod", "main", &corev1.PodLogOptions{Follow: true})
		if err != nil {
			read <- err.Error()
			return
		}
		defer log.Close()
		text, err := io.ReadAll(log)
		read <- fmt.Sprint(string(text), err)
	}()
	eventually(t, "the log is asked for", func() bool { return len(a.requests()) == 1 })
	edit(w, r, a.kubeconfig("new"))
	eventually(t, "it is asked for again", func() bool { return len(a.requests()) == 2 })
	close(speak)
	if text := <-read; text != "hello\n<nil>" {
		t.Errorf("read %q", text)
	}
	if seen := a.requests(); seen[1] != "Bearer new" {
		t.Errorf("asked with %q", seen[1])
	}
}

// A provider that renews the stored configuration does not undo an edit that came in between, nor is the edit overlooked.
func TestB52RenewedConfigAndAnEdit(t *testing.T) {
	a := newAPI(t, version)
	w := newWorld(func(context.Context, cluster.Cluster) (Connection, error) {
		return Connection{Kubeconfig: a.kubeconfig("old"), ReplacementConfig: []byte(`{}`)}, nil
	})
	r := newTestRegistry(t, w, func(o *Options) {
		o.StoreConfig = func(_ context.Context, id string, revision int64, _ []byte) (int64, error) {
			w.answer(gives(a.kubeconfig("new")))
			w.change(id, func(c *cluster.Cluster) { c.ConfigRevision++ })
			return 0, cluster.ErrStale
		}
	})
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := ping(c); err != nil {
		t.Fatal(err)
	}
	if seen := a.requests(); seen[len(seen)-1] != "Bearer new" {
		t.Errorf("the edit is not in use: %q", seen)
	}
}

// A thousand changes of token, certificate, address and namespace under open streams leave nothing behind.
func TestB52ThousandChangesLeakNothing(t *testing.T) {
	a, b := newHouse(t), newHouse(t)
	w := newWorld(gives(a.kubeconfig("first")))
	r := newTestRegistry(t, w)
	streaming(t, r, a, "first")
	work(t, r)
	goroutines, files := runtime.NumGoroutine(), openFiles()

	users := []string{`token: "one"`, clientCertificate(t), `token: "two"`, clientCertificate(t)}
	for i := range 1000 {
		h := a
		if i%4 == 3 {
			h = b
		}
		w.answer(gives(h.kubeconfigOf(users[i/2%len(users)])))
		w.change("c1", func(c *cluster.Cluster) {
			c.ConfigRevision++
			c.Namespace = fmt.Sprintf("jobs-%d", i/50)
		})
		c, err := r.Get(t.Context(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			if err := ping(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	edit(w, r, a.kubeconfig("last"))
	eventuallyIn(t, time.Minute, "the streams have settled", func() bool { return a.on("last") == 3 })
	work(t, r)
	eventuallyIn(t, time.Minute, "one connection is left", func() bool { return a.open() == 1 && b.open() == 0 })
	eventuallyIn(t, time.Minute, "the goroutines are gone", func() bool { return runtime.NumGoroutine() <= goroutines+5 })
	eventuallyIn(t, time.Minute, "the files are closed", func() bool { return openFiles() <= files+2 })
	r.mu.Lock()
	l := r.slots["c1"].client.link
	r.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wires) != 1 || len(l.streams) != 3 {
		t.Errorf("%d wires and %d streams are held, want 1 and 3", len(l.wires), len(l.streams))
	}
}

// openFiles counts the files of this process; zero where that cannot be told.
func openFiles() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// clientCertificate is a user of a kubeconfig.
func clientCertificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, raw []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
	}
	return fmt.Sprintf("client-certificate-data: %s, client-key-data: %s", text("CERTIFICATE", cert), text("PRIVATE KEY", raw))
}

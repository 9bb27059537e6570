package kube

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// script is an API server with one Job, whose watches of Jobs do as the test says. Those of pods stay open and mute.
type script struct {
	mu      sync.Mutex
	done    bool // the Job has completed
	watches []url.Values
	times   []time.Time
	lists   int
	// watch serves the n-th watch of Jobs, counted from 1; it returns to end the stream.
	watch func(n int, w http.ResponseWriter, r *http.Request)
}

func (s *script) job() *batchv1.Job {
	j := aJob("one", "a1")
	j.TypeMeta = metav1.TypeMeta{Kind: "Job", APIVersion: "batch/v1"}
	j.ResourceVersion = "7"
	if s.done {
		j.ResourceVersion = "9"
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	}
	return j
}

func (s *script) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" {
		version(w, r)
		return
	}
	jobs, watches := strings.HasSuffix(r.URL.Path, "/jobs"), r.URL.Query().Get("watch") != ""
	w.Header().Set("Content-Type", "application/json")
	switch {
	case watches && jobs:
		s.mu.Lock()
		s.watches = append(s.watches, r.URL.Query())
		s.times = append(s.times, time.Now())
		n := len(s.watches)
		s.mu.Unlock()
		s.watch(n, w, r)
	case watches:
		mute(w, r)
	case jobs:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lists++
		answer(w, batchv1.JobList{
			TypeMeta: metav1.TypeMeta{Kind: "JobList", APIVersion: "batch/v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: s.job().ResourceVersion}, Items: []batchv1.Job{*s.job()},
		})
	default:
		answer(w, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"}})
	}
}

// mute opens a stream that brings nothing.
func mute(w http.ResponseWriter, r *http.Request) {
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func send(w http.ResponseWriter, kind string, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
	w.(http.Flusher).Flush()
}

func failure(code int32, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: code, Reason: reason, Message: "said by the test"}
}

// over says whether the watch shows that the Job has completed.
func over(w *watched) func() bool {
	return func() bool {
		j := w.Job("jobs", "one")
		return j != nil && evidence.Read(evidence.Input{Job: j, Attempt: process.Attempt{ID: "a1"}}).State == process.Succeeded
	}
}

// plain gives a client of a server without TLS, and so of HTTP/1.1.
func plain(t *testing.T, h http.Handler) func(context.Context) (*Client, error) {
	t.Helper()
	server := httptest.NewServer(h)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	set, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1, Transport: transport, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{ClusterID: "c1", Namespace: "jobs", Clientset: set}
	return func(context.Context) (*Client, error) { return c, nil }
}

// A Status object in the stream is no Job, whatever its code; what was missed is listed.
func TestB43_ErrorEventsListAgain(t *testing.T) {
	for name, status := range map[string]*metav1.Status{
		"410 in the stream": failure(410, metav1.StatusReasonExpired),
		"500 in the stream": failure(500, metav1.StatusReasonInternalError),
		"an unknown one":    {TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			s.watch = func(n int, w http.ResponseWriter, r *http.Request) {
				switch n {
				case 1:
					send(w, "ADDED", s.job())
					s.complete() // in between
					send(w, "ERROR", status)
				case 2:
					w.WriteHeader(http.StatusGone)
					_ = json.NewEncoder(w).Encode(failure(410, metav1.StatusReasonExpired))
				default:
					mute(w, r)
				}
			}
			seen := runWatch(t, plain(t, s))
			eventuallyIn(t, 10*time.Second, "the completion", over(seen))
			if jobs := seen.Jobs(); len(jobs) != 1 || jobs[0].Name != "one" {
				t.Errorf("jobs %v", jobs)
			}
			if seen.told("") != 0 {
				t.Error("the Status object was taken for an object of its own")
			}
		})
	}
}

// Expired for ever: every pause is longer than the one before, until they are so long that a minute has fewer than 20
// requests, and the lists in between bring the result.
func TestB43_ExpiredForEver(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.watch = func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusGone)
		_ = json.NewEncoder(w).Encode(failure(410, metav1.StatusReasonExpired))
	}
	seen := runWatch(t, plain(t, s))
	count := func() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.times) }
	eventually(t, "three watches", func() bool { return count() >= 3 })
	s.complete()
	eventually(t, "the completion", over(seen))
	eventually(t, "five watches", func() bool { return count() >= 5 })
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 2; i < 5; i++ {
		if before, pause := s.times[i-1].Sub(s.times[i-2]), s.times[i].Sub(s.times[i-1]); pause < before*11/10 {
			t.Errorf("pause %d is %s after one of %s: they do not grow", i, pause, before)
		}
	}
	// A list and a watch after each pause.
	if perMinute := 2 * int(time.Minute/lastRetry); perMinute >= 20 {
		t.Errorf("%d requests a minute in the end", perMinute)
	}
}

// A stream that ends goes on where its last bookmark was, without a list.
func TestB43_BookmarksSpareLists(t *testing.T) {
	t.Parallel()
	s := &script{}
	s.watch = func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			mark := s.job()
			mark.ResourceVersion = "50"
			send(w, "BOOKMARK", mark)
		default:
			s.complete()
			done := s.job()
			done.ResourceVersion = "51"
			send(w, "MODIFIED", done)
			mute(w, r)
		}
	}
	seen := runWatch(t, plain(t, s))
	eventually(t, "the completion", over(seen))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists != 1 {
		t.Errorf("%d lists, want one", s.lists)
	}
	if q := s.watches[0]; q.Get("allowWatchBookmarks") != "true" || q.Get("resourceVersion") != "7" {
		t.Errorf("first watch %v", q)
	}
	if q := s.watches[1]; q.Get("resourceVersion") != "50" {
		t.Errorf("second watch from version %s, want that of the bookmark", q.Get("resourceVersion"))
	}
}

// passage passes connections on. Those that are open can be made to die in silence, as behind a NAT that forgot them: new
// ones work.
type passage struct {
	net.Listener
	target string
	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  []*dying
}

type dying struct {
	net.Conn
	mu   sync.Mutex
	dead bool
}

func (d *dying) Read(b []byte) (int, error) {
	for {
		n, err := d.Conn.Read(b)
		d.mu.Lock()
		dead := d.dead
		d.mu.Unlock()
		if err != nil || !dead {
			return n, err
		}
	}
}

func (d *dying) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return len(b), nil
	}
	return d.Conn.Write(b)
}

func newPassage(t *testing.T, target string) *passage {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &passage{Listener: l, target: target}
	n.wg.Go(n.accept)
	t.Cleanup(func() {
		_ = l.Close()
		n.mu.Lock()
		for _, c := range n.conns {
			_ = c.Close()
		}
		n.mu.Unlock()
		n.wg.Wait()
	})
	return n
}

func (n *passage) accept() {
	for {
		near, err := n.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", n.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		a, b := &dying{Conn: near}, &dying{Conn: far}
		n.mu.Lock()
		n.conns = append(n.conns, a, b)
		n.mu.Unlock()
		for _, pair := range [][2]*dying{{a, b}, {b, a}} {
			n.wg.Go(func() {
				_, _ = io.Copy(struct{ io.Writer }{pair[0]}, struct{ io.Reader }{pair[1]})
				_ = pair[0].Close()
			})
		}
	}
}

// die kills the connections that are open, without a word to either end.
func (n *passage) die() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		c.mu.Lock()
		c.dead = true
		c.mu.Unlock()
	}
}

// A connection that died in silence is noticed: by pings where there is HTTP/2, by the silence where there is not.
func TestB43_SilentDeadConnections(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &script{}
			var protocols []string
			s.watch = func(n int, w http.ResponseWriter, r *http.Request) {
				s.mu.Lock()
				protocols = append(protocols, r.Proto)
				s.mu.Unlock()
				mark := s.job()
				send(w, "BOOKMARK", mark)
				if n > 1 {
					send(w, "MODIFIED", s.job())
				}
				mute(w, r)
			}
			server := httptest.NewUnstartedServer(s)
			server.EnableHTTP2 = http2
			server.StartTLS()
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			a := &api{Server: server}
			n := newPassage(t, server.Listener.Addr().String())
			a.URL = "https://" + n.Addr().String()
			r := newTestRegistry(t, newWorld(gives(a.kubeconfig("t"))))
			seen := runWatch(t, func(ctx context.Context) (*Client, error) { return r.Get(ctx, "c1") }, func(o *WatchOptions) {
				if !http2 {
					o.Silence = 2 * time.Second
				}
			})
			eventually(t, "both streams", func() bool { return seen.Synced() && seen.jobStream.up.Load() && seen.podStream.up.Load() })
			n.die()
			s.complete()
			start := time.Now()
			eventuallyIn(t, 40*time.Second, "the completion", over(seen))
			t.Logf("noticed after %s", time.Since(start).Round(time.Millisecond))
			s.mu.Lock()
			defer s.mu.Unlock()
			if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]; !slices.Contains(protocols, want) {
				t.Errorf("spoken were %v, want %s", protocols, want)
			}
		})
	}
}

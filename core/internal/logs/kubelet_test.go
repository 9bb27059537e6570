package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// kubelet is an API server of which only the log endpoint exists, so that a test decides in which order things happen.
// Like the real one it sends no header before the first byte and filters by whole seconds.
type kubelet struct {
	srv *httptest.Server
	src Source

	mu    sync.Mutex
	logs  map[string]*tape // by pod/container
	fault func(r request) fault
	opens map[string]int
	open  int
	moved signal // opens, open or a tape changed
}

// request is one call of the log endpoint.
type request struct {
	key      string
	n        int // counts from 1 per container
	follow   bool
	previous bool
	since    string
}

// fault is what happens to one call; the zero value is a proper answer.
type fault struct {
	status  int // an error answer
	message string
	reason  metav1.StatusReason
	cut     bool // end the answer after so many lines and so many bytes of the next one
	lines   int
	bytes   int
	abort   bool // by breaking the stream; else in order
	drop    bool // by closing the connection with all its streams
	goaway  bool // the server says GOAWAY before
	freeze  bool // answer nothing, or nothing more after the cut
}

// tape is what a container printed.
type tape struct {
	lines   []printed
	ended   bool
	rotated int // lines before this one are no longer there
}

type printed struct {
	at   time.Time
	text string // with its newline
	raw  bool   // without a stamp
}

func newKubelet(t testing.TB) *kubelet {
	t.Helper()
	k := &kubelet{logs: map[string]*tape{}, opens: map[string]int{}}
	k.srv = httptest.NewUnstartedServer(http.HandlerFunc(k.serve))
	k.srv.EnableHTTP2 = true
	k.srv.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections are the point
	k.srv.StartTLS()
	config := &rest.Config{Host: k.srv.URL, QPS: -1}
	config.TLSClientConfig.Insecure = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	set, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	k.src = Clients(func(context.Context, string) (kubernetes.Interface, error) { return set, nil })
	t.Cleanup(func() {
		client.CloseIdleConnections()
		k.srv.CloseClientConnections()
		k.srv.Close()
	})
	return k
}

// print adds lines to a container's output.
func (k *kubelet) print(key string, lines ...printed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tape(key)
	t.lines = append(t.lines, lines...)
	k.moved.wake()
}

// end says that the container has ended.
func (k *kubelet) end(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tape(key).ended = true
	k.moved.wake()
}

func (k *kubelet) faults(f func(request) fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = f
	k.moved.wake()
}

func (k *kubelet) tape(key string) *tape {
	t := k.logs[key]
	if t == nil {
		t = &tape{}
		k.logs[key] = t
	}
	return t
}

// await waits until cond, called under the lock, is true.
func (k *kubelet) await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		k.mu.Lock()
		moved, ok := k.moved.wait(), cond()
		k.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			t.Fatalf("waited too long for: %s", what)
		}
	}
}

func (k *kubelet) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // api v1 namespaces NS pods POD log
	q := r.URL.Query()
	if q.Get("container") == "" || q.Get("timestamps") != "true" {
		refuse(w, fault{status: 400, reason: metav1.StatusReasonBadRequest, message: "a container name must be specified"})
		return
	}
	key := parts[5] + "/" + q.Get("container")
	if q.Get("previous") == "true" {
		key += "/previous"
	}
	k.mu.Lock()
	k.opens[key]++
	k.open++
	k.moved.wake()
	req := request{key: key, n: k.opens[key], follow: q.Get("follow") == "true", previous: q.Get("previous") == "true", since: q.Get("sinceTime")}
	var f fault
	if k.fault != nil {
		f = k.fault(req)
	}
	t := k.logs[key]
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.open--
		k.moved.wake()
		k.mu.Unlock()
	}()
	if f.status == 0 && t == nil {
		f = fault{status: 404, reason: metav1.StatusReasonNotFound, message: fmt.Sprintf("pods %q not found", parts[5])}
	}
	switch {
	case f.status != 0:
		refuse(w, f)
	case f.freeze && !f.cut:
		<-r.Context().Done()
	default:
		k.stream(w, r, t, req, f)
	}
}

func (k *kubelet) stream(w http.ResponseWriter, r *http.Request, t *tape, req request, f fault) {
	if f.goaway {
		w.Header().Set("Connection", "close") // over HTTP/2 this makes the server say GOAWAY
	}
	since, _ := time.Parse(time.RFC3339, req.since)
	k.mu.Lock()
	next := t.rotated
	k.mu.Unlock()
	sent := 0
	for {
		k.mu.Lock()
		moved, lines, ended := k.moved.wait(), t.lines, t.ended
		k.mu.Unlock()
		for ; next < len(lines); next++ {
			l := lines[next]
			if l.at.Before(since) && !l.raw {
				continue
			}
			text := l.text
			if !l.raw {
				text = l.at.Format("2006-01-02T15:04:05.000000000Z07:00") + " " + text
			}
			if f.cut && sent == f.lines {
				_, _ = w.Write([]byte(text)[:min(f.bytes, len(text))])
				_ = http.NewResponseController(w).Flush()
				if f.freeze {
					<-r.Context().Done()
				}
				if f.drop {
					go k.srv.CloseClientConnections()
					<-r.Context().Done()
				}
				if f.abort {
					panic(http.ErrAbortHandler)
				}
				return
			}
			_, _ = w.Write([]byte(text))
			sent++
		}
		if sent > 0 {
			_ = http.NewResponseController(w).Flush()
		}
		if ended || !req.follow {
			return
		}
		select {
		case <-moved:
		case <-r.Context().Done():
			return
		}
	}
}

func refuse(w http.ResponseWriter, f fault) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.status)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Message: f.message, Reason: f.reason, Code: int32(f.status),
	})
}

var t0 = time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

// lines gives numbered lines, a hundred a second.
func lines(from, to int) []printed {
	list := make([]printed, 0, to-from+1)
	for i := from; i <= to; i++ {
		list = append(list, printed{at: t0.Add(time.Duration(i) * 10 * time.Millisecond), text: fmt.Sprintf("line %d\n", i)})
	}
	return list
}

func text(list []printed) string {
	var b strings.Builder
	for _, l := range list {
		b.WriteString(l.text)
	}
	return b.String()
}

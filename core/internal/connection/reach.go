package connection

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

const (
	// maxVersion bounds the answer to /version, in bytes; it has some hundred.
	maxVersion = 64 << 10
	// maxSkew is how far the clocks may be apart without a word.
	maxSkew = 30 * time.Second
)

// seen is what the network told on the way to the first answer. Its goroutines may outlive the request.
type seen struct {
	mu    sync.Mutex
	addr  string    // last one that was tried
	ready time.Time // the connection
	first time.Time // byte of the answer
}

func (s *seen) do(f func()) { s.mu.Lock(); defer s.mu.Unlock(); f() }

func (s *seen) address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// trace turns what happens beneath a request into phases.
func (r *run) trace() *httptrace.ClientTrace {
	s := &r.seen
	return &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { r.steps.begin("resolve") },
		DNSDone: func(d httptrace.DNSDoneInfo) {
			if d.Err == nil {
				r.steps.remark("resolve", plural(len(d.Addrs), "address", "addresses"))
			}
		},
		ConnectStart: func(_, addr string) {
			s.do(func() { s.addr = addr })
			r.steps.begin("connect")
			r.steps.remark("connect", addr)
		},
		TLSHandshakeStart: func() { r.steps.begin("tls") },
		TLSHandshakeDone: func(state tls.ConnectionState, err error) {
			if err == nil && len(state.PeerCertificates) > 0 {
				r.steps.remark("tls", fmt.Sprintf("%s, certificate valid until %s", tls.VersionName(state.Version), date(state.PeerCertificates[0].NotAfter)))
			}
		},
		GotConn: func(c httptrace.GotConnInfo) {
			// The request is written by a goroutine of its own, which may say so after the answer has come.
			s.do(func() { s.addr, s.ready = c.Conn.RemoteAddr().String(), time.Now() })
			r.steps.begin("http")
		},
		GotFirstResponseByte: func() { s.do(func() { s.first = time.Now() }) },
	}
}

// reach asks for the version, which needs no rights, on a new connection.
func (r *run) reach() bool {
	url := r.trial.Probe().Discovery().RESTClient().Get().AbsPath("/version").URL().String()
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(r.ctx, r.trace()), http.MethodGet, url, nil)
	if err != nil {
		return r.fail(err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", r.trial.Config.UserAgent)
	r.steps.await("connect")
	resp, err := r.do(req)
	if err != nil {
		return r.fail(err)
	}
	defer resp.Body.Close()
	now := time.Now()
	r.headers = true
	r.seen.do(func() {
		if !r.seen.ready.IsZero() && r.seen.first.After(r.seen.ready) {
			r.report.LatencyMS = new(millis(r.seen.first.Sub(r.seen.ready)))
		}
	})
	r.skew(resp.Header.Get("Date"), now)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxVersion))
	if err != nil {
		return r.fail(err)
	}
	return r.greet(resp, body)
}

// do sends the first request. The backend's environment may have to run a program for credentials first, which knows no
// deadline: the test does not wait for one that hangs.
func (r *run) do(req *http.Request) (*http.Response, error) {
	client := &http.Client{Transport: r.trial.Config.Transport}
	if !r.trial.Backend {
		return client.Do(req)
	}
	type reply struct {
		resp *http.Response
		err  error
	}
	came := make(chan reply, 1)
	go func() {
		resp, err := client.Do(req) //nolint:bodyclose // closed by whoever takes it from the channel
		came <- reply{resp, err}
	}()
	select {
	case a := <-came:
		return a.resp, a.err
	case <-r.ctx.Done():
		go func() {
			if a := <-came; a.err == nil {
				a.resp.Body.Close()
			}
		}()
		return nil, r.ctx.Err()
	}
}

// skew compares the clocks. The header has whole seconds, so half of one is added.
func (r *run) skew(header string, now time.Time) {
	at, err := http.ParseTime(header)
	if err != nil {
		return
	}
	d := at.Add(500 * time.Millisecond).Sub(now).Round(100 * time.Millisecond)
	if d.Abs() <= time.Second {
		d = 0 // no more than the header can tell
	}
	r.report.SkewSeconds = new(d.Seconds())
	if d.Abs() >= maxSkew {
		way := "ahead of"
		if d < 0 {
			way = "behind"
		}
		r.warn(fmt.Sprintf("The cluster's clock is %s %s ours. Certificates and tokens are judged by it: set the clock of the one that is wrong.", d.Abs().Round(time.Second), way))
	}
}

// greet judges the answer to /version.
func (r *run) greet(resp *http.Response, body []byte) bool {
	code := resp.StatusCode
	var info version.Info
	var status metav1.Status
	switch {
	case code == http.StatusOK && json.Unmarshal(body, &info) == nil && info.GitVersion != "":
		r.report.Version = info.GitVersion
		r.steps.pass(info.GitVersion)
		return true
	case code == http.StatusUnauthorized:
		r.steps.pass("the server answers")
		r.steps.begin("credentials")
		return r.failCredentials(code, "")
	case code == http.StatusForbidden && json.Unmarshal(body, &status) == nil && status.Kind == "Status":
		// Its version is for those whom it knows; who that is comes next.
		r.steps.pass("the version is not told to everyone")
		return true
	case code == http.StatusTooManyRequests:
		return r.failWith(kube.Throttled, code, "The API server is overloaded: it answered 429.", "Test again in a moment.")
	case code >= http.StatusInternalServerError:
		return r.failWith(kube.Server, code, fmt.Sprintf("The API server reports an error: it answered %d.", code),
			"Look at the API server, or at the load balancer before it.")
	}
	what := "something else than a version"
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err == nil && kind == "text/html" {
		what = "a web page"
	}
	return r.failWith(kube.NotKubernetes, code, fmt.Sprintf("%s is no Kubernetes API: it answered %d and %s.", r.host(), code, what), notKubernetes)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func date(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Errors are made by real connections: what matters is what the libraries give, not what one thinks they give.
func TestClassify(t *testing.T) {
	html := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			_, _ = w.Write([]byte("<html>nothing here</html>"))
		}
	}
	says := func(code int, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { status(w, code, reason, "no") }
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		want    Class
		reached bool
		written bool // a write may have happened
	}{
		"401":                       {says(401, "Unauthorized"), Credentials, true, false},
		"403":                       {says(403, "Forbidden"), Permissions, true, false},
		"404":                       {says(404, "NotFound"), NotFound, true, false},
		"404 of another server":     {html(404), NotKubernetes, true, false}, // invariant 4: this is not "gone"
		"403 of another server":     {html(403), NotKubernetes, true, false},
		"409 of a version":          {says(409, "Conflict"), Conflict, true, false},
		"409 of a name":             {says(409, "AlreadyExists"), Exists, true, false},
		"410":                       {says(410, "Expired"), Gone, true, false},
		"422":                       {says(422, "Invalid"), Invalid, true, false},
		"400":                       {says(400, "BadRequest"), Invalid, true, false},
		"500":                       {says(500, "InternalError"), Server, true, true},
		"504 after storing":         {says(504, "Timeout"), Server, true, true},
		"502 of a load balancer":    {html(502), Server, true, true},
		"connection ends in answer": {func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, Broken, false, true},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, c.handler)
			r := newTestRegistry(t, newWorld(gives(a.kubeconfig("t"))))
			client, err := r.Get(t.Context(), "c1")
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Clientset.BatchV1().Jobs("n").Create(t.Context(), aJob("x", "a"), metav1.CreateOptions{})
			if err == nil {
				t.Fatal("no error")
			}
			if got := Classify(err); got != c.want || Reached(err) != c.reached || MayHaveHappened(err) != c.written {
				t.Errorf("%q, reached %v, may have happened %v; want %q, %v, %v\n%v", got, Reached(err), MayHaveHappened(err), c.want, c.reached, c.written, err)
			}
			if c.want.Unreachable() == c.reached {
				t.Errorf("class %q: unreachable %v", c.want, c.want.Unreachable())
			}
		})
	}
}

func TestClassifyConnections(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := closed.Addr().String()
	_ = closed.Close()
	plain := httptest.NewServer(http.HandlerFunc(version))
	t.Cleanup(plain.Close)
	mute, err := net.Listen("tcp", "127.0.0.1:0") // B13: accepts and stays mute
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mute.Close() })
	slow := newAPI(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	other := newAPI(t, version)

	at := func(server string) []byte {
		return fmt.Appendf(nil, "clusters: [{name: c, cluster: {server: %q}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]", server)
	}
	tests := map[string]struct {
		kubeconfig []byte
		want       Class
		written    bool
	}{
		"no such name":          {at("https://no-such-cluster.invalid"), DNS, false},
		"nothing listens":       {at("https://" + refusing), Refused, false},
		"no TLS":                {at(strings.Replace(plain.URL, "http:", "https:", 1)), TLS, false},
		"mute":                  {at("https://" + mute.Addr().String()), Timeout, true},
		"mute after TLS":        {slow.kubeconfig("t"), Timeout, true},
		"unknown authority":     {at(other.URL), TLS, false},
		"forbidden address":     {at("https://169.254.169.254"), Denied, false},
		"forbidden mapped form": {at("https://[::ffff:169.254.169.254]"), Denied, false},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestRegistry(t, newWorld(gives(c.kubeconfig)))
			client, err := r.Get(t.Context(), "c1")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err = client.Clientset.BatchV1().Jobs("n").Create(ctx, aJob("x", "a"), metav1.CreateOptions{})
			if got := Classify(err); got != c.want || Reached(err) || MayHaveHappened(err) != c.written || !got.Unreachable() {
				t.Errorf("%q, reached %v, may have happened %v; want %q\n%v", got, Reached(err), MayHaveHappened(err), c.want, err)
			}
		})
	}
}

func TestClassifyOwn(t *testing.T) {
	for want, err := range map[Class]error{
		OK: nil, Canceled: context.Canceled, Timeout: context.DeadlineExceeded, Provider: fmt.Errorf("x: %w", &ConnectError{"c", errors.New("y")}), Other: errors.New("?"),
	} {
		if got := Classify(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// B45: what the cluster asks to wait is known.
func TestRetryAfter(t *testing.T) {
	a := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429,"details":{"retryAfterSeconds":20}}`))
	})
	r := newTestRegistry(t, newWorld(gives(a.kubeconfig("t"))))
	client, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Clientset.BatchV1().Jobs("n").Get(t.Context(), "x", metav1.GetOptions{})
	if Classify(err) != Throttled || RetryAfter(err) != 20*time.Second {
		t.Errorf("%q, %s: %v", Classify(err), RetryAfter(err), err)
	}
}

func TestKindOf(t *testing.T) {
	for url, want := range map[string]string{
		"GET /api/v1/nodes":                                         "list nodes",
		"GET /api/v1/namespaces/n":                                  "get namespaces",
		"GET /api/v1/namespaces/n/pods?watch=true":                  "watch pods",
		"GET /api/v1/namespaces/n/pods/p/log":                       "log pods",
		"GET /k8s/clusters/c-1/apis/batch/v1/namespaces/n/jobs/api": "get jobs",
		"DELETE /apis/batch/v1/namespaces/n/jobs/j":                 "delete jobs",
		"POST /apis/batch/v1/namespaces/n/jobs":                     "create jobs",
		"GET /version":                                              "get other",
		"GET /":                                                     "get other",
		"GET /api":                                                  "get other",
	} {
		method, path, _ := strings.Cut(url, " ")
		req := httptest.NewRequest(method, "https://h"+path, nil)
		if verb, resource := kindOf(req); verb+" "+resource != want {
			t.Errorf("%s: %s %s, want %s", url, verb, resource, want)
		}
	}
}

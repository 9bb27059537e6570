package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// TestMatrix makes every class of failure with a real listener and real certificates. Each names its phase.
func TestMatrix(t *testing.T) {
	ca, stranger := newAuthority(t, "Cluster CA"), newAuthority(t, "Another CA")
	good := ca.issue(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing := closed.Addr().String()
	_ = closed.Close()
	handle := func(cert tls.Certificate, h http.HandlerFunc) []byte {
		s := httptest.NewUnstartedServer(h)
		s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
		s.Config.ErrorLog = quiet
		s.StartTLS()
		t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
		return config(s.URL, ca.pem(), token("good"))
	}
	at := func(l net.Listener) []byte { return config("https://"+l.Addr().String(), ca.pem(), token("good")) }
	says := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}
	}
	version := says(http.StatusOK, `{"gitVersion":"v1.37.2"}`)
	plain := httptest.NewServer(version)
	t.Cleanup(plain.Close)
	wantsCert := httptest.NewUnstartedServer(version)
	wantsCert.TLS = &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert}
	wantsCert.Config.ErrorLog = quiet
	wantsCert.StartTLS()
	t.Cleanup(wantsCert.Close)
	known := newAPI(t)

	tests := map[string]struct {
		kubeconfig []byte
		class      kube.Class
		phase      string
		code       int
		says       string // in the message
		remedy     string // in the remedy
	}{
		"no such name":         {config("https://no-such-cluster.invalid", nil, token("t")), kube.DNS, "resolve", 0, "no-such-cluster.invalid has no address", "name servers"},
		"metadata address":     {config("https://169.254.169.254", nil, token("t")), kube.Denied, "connect", 0, "169.254.169.254", "kube.allow_cidrs"},
		"nothing listens":      {config("https://"+refusing, nil, token("t")), kube.Refused, "connect", 0, "Nothing listens at " + refusing, "the machine that Nagelfluh runs on"},
		"no answer":            {at(deaf(t)), kube.Timeout, "connect", 0, "No connection to", "firewall"},
		"mute":                 {at(listen(t, nil, nil)), kube.Timeout, "tls", 0, "did not finish TLS within 3s", "firewall"},
		"mute after TLS":       {at(listen(t, &good, nil)), kube.Timeout, "http", 0, "gave no HTTP answer within 3s", "firewall"},
		"headers without body": {at(listen(t, &good, answerHalf)), kube.Timeout, "http", 0, "the headers of an answer and not the rest", "firewall"},
		"hangs up":             {at(listen(t, nil, func(c net.Conn) { _ = c.Close() })), kube.Broken, "tls", 0, "ended before an answer came", "load balancer"},
		"plain HTTP":           {config(strings.Replace(plain.URL, "http:", "https:", 1), nil, token("t")), kube.TLS, "tls", 0, "plain HTTP", "another port"},
		"no TLS":               {at(listen(t, nil, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.9\r\n")) })), kube.TLS, "tls", 0, "does not speak TLS", "port"},
		"expired certificate": {handle(ca.issue(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), version),
			kube.TLS, "tls", 0, "expired on " + time.Now().UTC().Format("2006"), "Renew"},
		"not yet valid": {handle(ca.issue(t, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), version),
			kube.TLS, "tls", 0, "is not valid before", "clock"},
		"wrong name": {handle(ca.issue(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"kubernetes.example.org"} }), version),
			kube.TLS, "tls", 0, "is for kubernetes.example.org and not for 127.0.0.1", "tls-server-name"},
		"unknown authority":          {handle(stranger.issue(t), version), kube.TLS, "tls", 0, "the authority CN=Another CA", "certificate-authority-data"},
		"client certificate":         {config(wantsCert.URL, ca.pem(), token("good")), kube.Credentials, "http", 0, "certificate required", "client certificate"},
		"web page":                   {handle(good, says(http.StatusOK, "<html>hello</html>")), kube.NotKubernetes, "http", 200, "a web page", "dashboard"},
		"page not found":             {handle(good, says(http.StatusNotFound, "<html>no</html>")), kube.NotKubernetes, "http", 404, "404", "dashboard"},
		"forbidden page":             {handle(good, says(http.StatusForbidden, "<html>no</html>")), kube.NotKubernetes, "http", 403, "403", "dashboard"},
		"no HTTP":                    {at(listen(t, &good, func(c net.Conn) { _, _ = c.Write([]byte("220 mail.example.org ESMTP\r\n")) })), kube.NotKubernetes, "http", 0, "malformed HTTP", "the Kubernetes API itself"},
		"the version for everything": {handle(good, version), kube.NotKubernetes, "credentials", 0, "text/html", "dashboard"},
		"other JSON":                 {handle(good, says(http.StatusOK, `{"status":"ok"}`)), kube.NotKubernetes, "http", 200, "no Kubernetes API", "dashboard"},
		"redirect": {handle(good, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://login.example.org/", http.StatusFound)
		}),
			kube.NotKubernetes, "http", 0, "redirects", "login page"},
		"load balancer without servers": {handle(good, says(http.StatusServiceUnavailable, "<html>503</html>")), kube.Server, "http", 503, "503", "load balancer"},
		"overloaded":                    {handle(good, says(http.StatusTooManyRequests, "slow down")), kube.Throttled, "http", 429, "429", "in a moment"},
		"401 for everything":            {handle(good, says(http.StatusUnauthorized, "no")), kube.Credentials, "credentials", 401, "HTTP 401", "token"},
		"401":                           {config(known.URL, known.ca(), token("bad")), kube.Credentials, "credentials", 401, "HTTP 401", "token"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limits := brief
			if c.class != kube.Timeout {
				limits = func(*Options) {}
			}
			r := test(t, c.kubeconfig, limits)
			if r.OK || r.Class != string(c.class) || last(r) != c.phase || r.HTTPStatus != c.code {
				t.Errorf("class %q in phase %q with code %d; want %q, %q, %d\n%+v", r.Class, last(r), r.HTTPStatus, c.class, c.phase, c.code, r.Phases)
			}
			if !strings.Contains(r.Message, c.says) || !strings.Contains(r.Remedy, c.remedy) {
				t.Errorf("message %q, remedy %q; want %q, %q", r.Message, r.Remedy, c.says, c.remedy)
			}
			for i, p := range r.Phases {
				if p.OK == (i == len(r.Phases)-1) {
					t.Errorf("phase %s: %v", p.Name, p.OK)
				}
			}
		})
	}
}

// answerHalf sends headers that promise a body, and nothing of it.
func answerHalf(c net.Conn) {
	if _, err := c.Read(make([]byte, 4096)); err != nil {
		return
	}
	_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"))
}

func TestProvider(t *testing.T) {
	refuses := problem.Fields(problem.Invalid, []problem.Field{{Field: "provider_config.kubeconfig", Message: "is empty"}})
	tests := map[string]struct {
		connect connector
		class   string
		phase   string
		says    string
	}{
		"fails": {func(context.Context, cluster.Cluster) (kube.Connection, error) { return kube.Connection{}, errProvider },
			string(kube.Provider), "provider", "the machine is off"},
		"hangs": {func(ctx context.Context, _ cluster.Cluster) (kube.Connection, error) {
			<-ctx.Done()
			return kube.Connection{}, ctx.Err()
		}, string(kube.Timeout), "provider", "within 3s"},
		"refuses the config": {func(context.Context, cluster.Cluster) (kube.Connection, error) { return kube.Connection{}, refuses },
			cluster.ClassConfig, "provider", "is empty"},
		"gives nothing": {gives(nil), string(kube.Provider), "policy", "no kubeconfig"},
		"gives what the policy refuses": {gives([]byte(strings.Replace(string(config("https://h", nil, "exec: {command: sh}")), "token", "x", 1))),
			cluster.ClassPolicy, "policy", "users[0].user.exec"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tester := newTester(t, c.connect, brief)
			r := show(t, tester.Test(t.Context(), cluster.Cluster{}))
			if r.OK || r.Class != c.class || last(r) != c.phase || !strings.Contains(r.Message, c.says) || r.Remedy == "" {
				t.Errorf("%+v", r)
			}
			if refused := c.class == cluster.ClassConfig || c.class == cluster.ClassPolicy; refused != (len(r.Fields) > 0) {
				t.Errorf("fields %v", r.Fields)
			}
			if check := tester.Check(t.Context(), cluster.Cluster{}); check.OK || check.Class != c.class {
				t.Errorf("check: %+v", check)
			}
		})
	}
}

// A text with several contexts and none current gives them to choose from.
func TestContextsToChooseFrom(t *testing.T) {
	text := "clusters: [{name: c, cluster: {server: https://h}}]\nusers: [{name: u, user: {token: t}}]\n" +
		"contexts: [{name: a, context: {cluster: c, user: u}}, {name: b, context: {cluster: c, user: u}}]"
	r := test(t, []byte(text))
	if r.Class != cluster.ClassPolicy || strings.Join(r.Contexts, " ") != "a b" {
		t.Errorf("%+v", r)
	}
}

// The limit of the whole test names the phase that it fell in.
func TestWholeLimit(t *testing.T) {
	l := listen(t, nil, nil)
	r := test(t, config("https://"+l.Addr().String(), nil, token("t")), func(o *Options) { o.Phase, o.Total = time.Minute, 2*time.Second })
	if r.Class != string(kube.Timeout) || last(r) != "tls" || !strings.Contains(r.Message, "the limit of the whole test") {
		t.Errorf("%+v", r)
	}
}

// The backend's own environment goes the same way, without the policy.
func TestBackend(t *testing.T) {
	a := newAPI(t)
	clients := kube.NewRegistry(kube.Options{DefaultNamespace: "team-a", Backend: backendOf(a)})
	t.Cleanup(clients.Close)
	tester := New(Options{Clients: clients, Connector: connector(func(context.Context, cluster.Cluster) (kube.Connection, error) {
		return kube.Connection{Backend: true}, nil
	})})
	if r := show(t, tester.Test(t.Context(), cluster.Cluster{})); !r.OK || r.User != "worker" || r.Version != "v1.37.2" {
		t.Errorf("%+v", r)
	}
	if r := tester.Check(t.Context(), cluster.Cluster{}); !r.OK || len(r.Phases) != 2 || r.Version != "" {
		t.Errorf("check: %+v", r)
	}
}

// A program that the backend's kubeconfig runs for credentials may hang; the test does not.
func TestBackendProgramHangs(t *testing.T) {
	a := newAPI(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { // lets the program end, and with it the request
		if err := os.WriteFile(pipe, []byte("go\n"), 0); err != nil {
			t.Error(err)
		}
	})
	clients := kube.NewRegistry(kube.Options{DefaultNamespace: "team-a", Backend: func() (*rest.Config, error) {
		return &rest.Config{Host: a.URL, TLSClientConfig: rest.TLSClientConfig{CAData: a.ca()}, ExecProvider: &clientcmdapi.ExecConfig{
			Command: "sh", Args: []string{"-c", "read line < " + pipe}, APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}, nil
	}})
	t.Cleanup(clients.Close)
	tester := New(Options{Clients: clients, Phase: time.Second, Total: 10 * time.Second, Connector: connector(func(context.Context, cluster.Cluster) (kube.Connection, error) {
		return kube.Connection{Backend: true}, nil
	})})
	if r := show(t, tester.Test(t.Context(), cluster.Cluster{})); r.Class != string(kube.Timeout) || !strings.Contains(r.Message, "gave no credentials within 1s") {
		t.Errorf("%+v", r)
	}
}

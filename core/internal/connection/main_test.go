package connection

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	authn "k8s.io/api/authentication/v1"
	authz "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs the certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue signs a certificate for 127.0.0.1, changed as the test wants.
func (a *authority) issue(t testing.TB, change ...func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "leaf"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, f := range change {
		f(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listen starts a TLS listener with a certificate; each connection goes to serve after its handshake. Nil keeps it open and mute.
func listen(t testing.TB, cert *tls.Certificate, serve func(net.Conn)) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() {
				if cert != nil {
					c := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}})
					if c.Handshake() == nil && serve != nil {
						serve(c)
					}
				} else if serve != nil {
					serve(c)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l
}

// deaf listens with a full queue: a connection to it is never made.
func deaf(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		c, err := net.DialTimeout("tcp", l.Addr().String(), 300*time.Millisecond)
		if err != nil {
			return l
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("this system takes connections beyond the queue of a listener")
	return nil
}

// config is a kubeconfig for a server.
func config(server string, ca []byte, user string) []byte {
	c := fmt.Sprintf("server: %q", server)
	if ca != nil {
		c += ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(ca)
	}
	return fmt.Appendf(nil, "clusters: [{name: c, cluster: {%s}}]\nusers: [{name: u, user: {%s}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]", c, user)
}

// mark is in every token of these tests, and in nothing that a report says.
const mark = "SECRET-MARK-"

func token(s string) string { return bearer(mark + s) }

func bearer(s string) string { return fmt.Sprintf("token: %q", s) }

// userCert is a user with a client certificate.
func userCert(t testing.TB, cert tls.Certificate) string {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("client-certificate-data: %s, client-key-data: %s",
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})),
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

// connector is a provider.
type connector func(ctx context.Context, c cluster.Cluster) (kube.Connection, error)

func (f connector) Connect(ctx context.Context, c cluster.Cluster) (kube.Connection, error) {
	return f(ctx, c)
}

func gives(kubeconfig []byte) connector {
	return func(context.Context, cluster.Cluster) (kube.Connection, error) {
		return kube.Connection{Kubeconfig: kubeconfig}, nil
	}
}

// newTester makes a tester whose phases are short enough for a test that waits for them.
func newTester(t testing.TB, c connector, change ...func(*Options)) *Tester {
	t.Helper()
	clients := kube.NewRegistry(kube.Options{DefaultNamespace: "team-a", Policy: kubeconfig.Options{}, AllowCIDRs: []netip.Prefix{}})
	t.Cleanup(clients.Close)
	o := Options{Connector: c, Clients: clients, Phase: 20 * time.Second, Total: 60 * time.Second}
	for _, f := range change {
		f(&o)
	}
	return New(o)
}

func brief(o *Options) { o.Phase, o.Total = 3*time.Second, 30*time.Second }

func test(t testing.TB, kubeconfig []byte, change ...func(*Options)) cluster.Report {
	t.Helper()
	return show(t, newTester(t, gives(kubeconfig), change...).Test(t.Context(), cluster.Cluster{}))
}

func show(t testing.TB, r cluster.Report) cluster.Report {
	t.Helper()
	if raw, err := json.Marshal(r); err != nil || strings.Contains(string(raw), mark) {
		t.Errorf("a secret is in the report, or %v", err)
	}
	t.Logf("%v %q: %s %s %v", r.OK, r.Class, r.Message, r.Remedy, r.Warnings)
	return r
}

// last is the phase that ended the test.
func last(r cluster.Report) string {
	if len(r.Phases) == 0 {
		return ""
	}
	return r.Phases[len(r.Phases)-1].Name
}

// api is an API server as far as a test of a connection asks one. Everything may be asked of it and is allowed, unless
// the test says otherwise.
type api struct {
	*httptest.Server
	open      bool                                // the version is told to everybody
	anonymous bool                                // who is not known is taken for anonymous instead of refused
	reviews   bool                                // reviews are answered
	plain     bool                                // reviews are not known, as old clusters say it
	behind    time.Duration                       // of its clock
	allowed   func(authz.ResourceAttributes) bool // nil: all is
	answers   map[string]any                      // path → answer

	mu    sync.Mutex
	posts []string // paths of what was not read
}

func newAPI(t testing.TB, change ...func(*api)) *api {
	t.Helper()
	a := &api{open: true, reviews: true, answers: map[string]any{}}
	for _, f := range change {
		f(a)
	}
	a.Server = httptest.NewUnstartedServer(http.HandlerFunc(a.serve))
	a.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail, as they should
	a.EnableHTTP2 = true
	a.StartTLS()
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *api) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	w.Header().Set("Date", time.Now().Add(-a.behind).UTC().Format(http.TimeFormat))
	if path == "/version" && a.open {
		answer(w, http.StatusOK, map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.2"})
		return
	}
	if r.Method != http.MethodGet {
		a.mu.Lock()
		a.posts = append(a.posts, path)
		a.mu.Unlock()
	}
	if r.Header.Get("Authorization") != "Bearer "+mark+"good" {
		if a.anonymous {
			fail(w, http.StatusForbidden, "Forbidden", `User "system:anonymous" cannot do this`)
			return
		}
		fail(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	if reply, there := a.answers[path]; there {
		answer(w, http.StatusOK, reply)
		return
	}
	may := func(at authz.ResourceAttributes) bool { return a.allowed == nil || a.allowed(at) }
	forbidden := func(verb, resource string) {
		fail(w, http.StatusForbidden, "Forbidden", fmt.Sprintf("%s is forbidden: User \"worker\" cannot %s resource %q", resource, verb, resource))
	}
	switch {
	case strings.HasSuffix(path, "reviews") && a.plain:
		http.NotFound(w, r)
	case strings.HasSuffix(path, "reviews") && !a.reviews:
		forbidden("create", path[strings.LastIndex(path, "/")+1:])
	case strings.HasSuffix(path, "/selfsubjectreviews"):
		answer(w, http.StatusCreated, authn.SelfSubjectReview{
			TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectReview", APIVersion: "authentication.k8s.io/v1"},
			Status:   authn.SelfSubjectReviewStatus{UserInfo: authn.UserInfo{Username: "worker", Groups: []string{"system:authenticated"}}},
		})
	case strings.HasSuffix(path, "/selfsubjectaccessreviews"):
		raw, err := io.ReadAll(r.Body)
		var review authz.SelfSubjectAccessReview
		if err == nil {
			_, _, err = scheme.Codecs.UniversalDeserializer().Decode(raw, nil, &review)
		}
		if err != nil {
			fail(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
		review.TypeMeta = metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"}
		review.Status.Allowed = may(*review.Spec.ResourceAttributes)
		answer(w, http.StatusCreated, review)
	case strings.HasSuffix(path, "/jobs"):
		if !may(authz.ResourceAttributes{Verb: "list", Group: "batch", Resource: "jobs", Namespace: "team-a"}) {
			forbidden("list", "jobs")
			return
		}
		answer(w, http.StatusOK, map[string]any{"kind": "JobList", "apiVersion": "batch/v1", "metadata": map[string]string{}, "items": []any{}})
	case strings.HasSuffix(path, "/pods"):
		answer(w, http.StatusOK, map[string]any{"kind": "PodList", "apiVersion": "v1", "metadata": map[string]string{}, "items": []any{}})
	case strings.HasPrefix(path, "/api/v1/namespaces/"):
		name := strings.TrimPrefix(path, "/api/v1/namespaces/")
		if !may(authz.ResourceAttributes{Verb: "get", Resource: "namespaces", Name: name}) {
			forbidden("get", "namespaces")
			return
		}
		answer(w, http.StatusOK, map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]string{"name": name, "uid": "uid-of-" + name}})
	case path == "/api/v1/nodes" && !may(authz.ResourceAttributes{Verb: "list", Resource: "nodes"}):
		forbidden("list", "nodes")
	case path == "/api/v1/nodes":
		answer(w, http.StatusOK, map[string]any{"kind": "NodeList", "apiVersion": "v1", "metadata": map[string]string{}, "items": []any{map[string]any{
			"metadata": map[string]string{"name": "n1"},
			"status": map[string]any{
				"allocatable": map[string]string{"cpu": "4", "nvidia.com/gpu": "8"},
				"conditions":  []map[string]string{{"type": "Ready", "status": "True"}},
			},
		}}})
	default:
		fail(w, http.StatusNotFound, "NotFound", "there is nothing at "+path)
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code})
}

var errProvider = errors.New("the machine is off")

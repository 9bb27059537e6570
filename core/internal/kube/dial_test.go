package kube

import (
	"compress/gzip"
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
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
)

// resolveTo makes every name mean one IPv4 address for the length of a test.
func resolveTo(t *testing.T, addr netip.Addr) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(dnsAnswer(buf[:n], addr), from)
		}
	}()
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.Close()
		<-done
	})
}

// dnsAnswer answers a question for an A record, and any other with nothing.
func dnsAnswer(query []byte, addr netip.Addr) []byte {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	question := query[12 : end+5]
	out := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if query[end+2] == 1 { // type A
		out[7] = 1
		out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, addr.AsSlice()...)
	}
	return out
}

// at is a kubeconfig that leads to a server, with more fields of the cluster.
func at(server, more string) []byte {
	return fmt.Appendf(nil, "clusters: [{name: c, cluster: {server: %q%s}}]\nusers: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]", server, more)
}

func clientOf(t *testing.T, config []byte, change ...func(*Options)) *Client {
	t.Helper()
	c, err := newTestRegistry(t, newWorld(gives(config)), change...).Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A name is judged by what it means at the moment of the dial, and so is one that means another address than before.
func TestForbiddenAddressBehindAName(t *testing.T) {
	a := newAPI(t, version)
	port := a.URL[strings.LastIndexByte(a.URL, ':'):]
	resolveTo(t, netip.MustParseAddr("127.0.0.1"))
	named := strings.Replace(string(a.kubeconfig("t")), a.URL, "https://cluster.example"+port, 1)
	named = strings.Replace(named, "server:", "tls-server-name: example.com, server:", 1) // the name that httptest certifies
	c := clientOf(t, []byte(named))
	if err := ping(c); err != nil {
		t.Fatalf("the name of an allowed address: %v", err)
	}
	c.link.current.Load().conns.CloseAll()
	for _, addr := range []string{"169.254.169.254", "100.100.100.200", "0.0.0.0"} {
		resolveTo(t, netip.MustParseAddr(addr))
		// The connection that is there may answer once more before its end is noticed.
		eventually(t, addr+" is denied", func() bool { return Classify(ping(c)) == Denied })
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	other := newAPI(t, version)
	for _, code := range []int{301, 302, 303, 307, 308} {
		a := newAPI(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+r.URL.Path, code) })
		c := clientOf(t, a.kubeconfig("t"))
		_, get := c.Clientset.BatchV1().Jobs("n").Get(t.Context(), "x", metav1.GetOptions{})
		_, create := c.Clientset.BatchV1().Jobs("n").Create(t.Context(), aJob("x", "a"), metav1.CreateOptions{})
		_, watch := c.Clientset.BatchV1().Jobs("n").Watch(t.Context(), metav1.ListOptions{})
		_, logs := c.Logs(t.Context(), "p", "c", &corev1.PodLogOptions{Follow: true})
		for name, err := range map[string]error{"get": get, "create": create, "watch": watch, "log": logs, "probe": func() error { _, err := c.Probe().Discovery().ServerVersion(); return err }()} {
			if Classify(err) != NotKubernetes || strings.Contains(fmt.Sprint(err), other.URL) {
				t.Errorf("%d, %s: %v", code, name, err)
			}
		}
	}
	if seen := other.requests(); len(seen) != 0 {
		t.Errorf("%d requests followed, token and all", len(seen))
	}
}

// tunnel plays a proxy that tells which tunnels it is asked for, and opens none.
func tunnel(t *testing.T) (address string, asked func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	p := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Method+" "+r.Host)
		mu.Unlock()
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(p.Close)
	return p.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), seen...)
	}
}

func TestProxyOnlyWhenTheOperatorListsIt(t *testing.T) {
	proxy, asked := tunnel(t)
	config := at("https://cluster.example:6443", ", proxy-url: "+proxy)
	_, err := newTestRegistry(t, newWorld(gives(config))).Get(t.Context(), "c1")
	var refusal *kubeconfig.Refusal
	if !errors.As(err, &refusal) || refusal.Class != kubeconfig.Proxy || refusal.Field != "clusters[0].cluster.proxy-url" {
		t.Errorf("a proxy that is not listed: %v", err)
	}
	listed := func(o *Options) { o.Policy.AllowedProxies = []string{proxy} }
	if err := ping(clientOf(t, config, listed)); err == nil {
		t.Error("the proxy opens no tunnel, and yet there is an answer")
	}
	if seen := asked(); len(seen) == 0 || seen[0] != "CONNECT cluster.example:6443" {
		t.Errorf("the proxy was asked for %q", seen)
	}
}

func TestProxyIsNotAskedForForbiddenAddresses(t *testing.T) {
	proxy, asked := tunnel(t)
	listed := func(o *Options) { o.Policy.AllowedProxies = []string{proxy} }
	for _, server := range []string{"https://169.254.169.254", "https://[::ffff:169.254.169.254]", "https://[fd00:ec2::254]"} {
		if err := ping(clientOf(t, at(server, ", proxy-url: "+proxy), listed)); Classify(err) != Denied {
			t.Errorf("%s: %v", server, err)
		}
	}
	if seen := asked(); len(seen) != 0 {
		t.Errorf("the proxy was asked for %q", seen)
	}
	exempt := func(o *Options) { o.AllowCIDRs = []netip.Prefix{netip.MustParsePrefix("169.254.169.254/32")} }
	if err := ping(clientOf(t, at("https://169.254.169.254", ", proxy-url: "+proxy), listed, exempt)); err == nil || Classify(err) == Denied {
		t.Errorf("the operator's exemption does not hold: %v", err)
	}
}

// What counts is what an answer unpacks to.
func TestAnswerIsBounded(t *testing.T) {
	a := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer z.Close()
		zeros := make([]byte, 1<<20)
		for range maxAnswer>>20 + 1 {
			if _, err := z.Write(zeros); err != nil {
				return
			}
		}
	})
	c := clientOf(t, a.kubeconfig("t"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Config.Transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, errTooLarge) || n > maxAnswer {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	a := newAPI(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 40 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("x", 100_000))
		}
		version(w, r)
	})
	if err := ping(clientOf(t, a.kubeconfig("t"))); err == nil {
		t.Error("headers of 4 MB are taken")
	}
}

// The caller's deadline holds for all that one call takes: the answer, the new credentials and the second answer.
func TestOneDeadlineForAll(t *testing.T) {
	a := newAPI(t, version)
	a.allow("none")
	var connects atomic.Int32
	w := newWorld(func(ctx context.Context, _ cluster.Cluster) (Connection, error) {
		if connects.Add(1) > 1 {
			<-ctx.Done() // a provider that hangs
			return Connection{}, ctx.Err()
		}
		return Connection{Kubeconfig: a.kubeconfig("t")}, nil
	})
	r := newTestRegistry(t, w, func(o *Options) { o.BuildTimeout = time.Hour })
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	if _, err = c.Clientset.BatchV1().Jobs("n").Get(ctx, "x", metav1.GetOptions{}); err == nil {
		t.Error("an answer without credentials")
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s with a deadline of 1s", took)
	}
	if connects.Load() != 2 {
		t.Errorf("the provider was asked %d times", connects.Load())
	}
}

// B08: a client certificate that has ended is refused where it is tested. In work it is for the cluster to refuse: a 401
// is a matter of credentials, and nobody takes the cluster for lost.
func TestB08ExpiredCertificateInWork(t *testing.T) {
	a := newAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(-72 * time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: end.Add(-time.Hour), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	config := []byte(strings.Replace(string(a.kubeconfig("t")), "token: \"t\"",
		"client-certificate-data: "+text("CERTIFICATE", der)+", client-key-data: "+text("EC PRIVATE KEY", keyDER), 1))

	r := newTestRegistry(t, newWorld(gives(config)))
	var refusal *kubeconfig.Refusal
	if _, err := r.Try(cluster.Cluster{ID: "new"}, Connection{Kubeconfig: config}); !errors.As(err, &refusal) || !refusal.Expired() ||
		!strings.Contains(err.Error(), "expired on "+end.UTC().Format(time.DateOnly)) {
		t.Errorf("tested: %v", err)
	}
	c, err := r.Get(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	if class := Classify(ping(c)); class != Credentials || class.Unreachable() {
		t.Errorf("in work: %q", class)
	}
}

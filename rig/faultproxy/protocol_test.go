package faultproxy

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"
)

func TestBothProtocols(t *testing.T) {
	p, _, _, host := start(t)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(p.ca) {
		t.Fatal("no certificate")
	}
	for proto, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2}
		if !http2 {
			transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		t.Cleanup(transport.CloseIdleConnections)
		resp, err := (&http.Client{Transport: transport}).Get(host + "/x")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.Proto != proto || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: got %s, status %d", proto, resp.Proto, resp.StatusCode)
		}
	}
}

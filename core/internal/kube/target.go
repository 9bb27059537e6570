package kube

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
)

// endpoint is where a link leads. Two equal ones can share a transport; a different one needs a new client.
type endpoint struct {
	server     string
	serverName string
	ca         string
	insecure   bool
	proxy      string
	backend    bool
}

// credentials are what a link connects with. They are immutable; a new set replaces them.
type credentials struct {
	token string
	cert  *tls.Certificate // nil: none
	// certSum tells certificates apart; zero: none.
	certSum [sha256.Size]byte
	// expiresAt is when they end and renewAt when to ask for new ones; zero: not known to end.
	expiresAt time.Time
	renewAt   time.Time
	// ends is when they end by what the provider says, else by what they say themselves; zero: not known to end.
	ends time.Time
}

func (c *credentials) same(other *credentials) bool {
	return c.token == other.token && c.certSum == other.certSum
}

// target is a connection made usable: where to and with what.
type target struct {
	endpoint endpoint
	creds    *credentials
	backend  *rest.Config // set with endpoint.backend
	warnings []string
}

// resolve judges what a provider gave. Its errors hold no secret. Credentials that have ended are refused only where the
// policy has a time: in work they go to the cluster, which says so itself and so is not taken for unreachable.
func resolve(conn Connection, policy kubeconfig.Options, backend func() (*rest.Config, error), now time.Time) (target, error) {
	if conn.Backend {
		if len(conn.Kubeconfig) > 0 {
			return target{}, errors.New("the provider gave a kubeconfig and asked for the backend's environment: it must do one of them")
		}
		cfg, err := backend()
		if err != nil {
			return target{}, fmt.Errorf("the backend's own environment has no cluster: %w", err)
		}
		return target{
			endpoint: endpoint{server: cfg.Host, ca: string(cfg.CAData), backend: true}, creds: &credentials{}, backend: cfg,
		}, nil
	}
	if len(conn.Kubeconfig) == 0 {
		return target{}, errors.New("the provider gave no kubeconfig")
	}
	k, err := kubeconfig.Rebuild(conn.Kubeconfig, policy)
	if err != nil {
		return target{}, err
	}
	creds := &credentials{token: k.Token, expiresAt: conn.ExpiresAt}
	if len(k.ClientCert) > 0 {
		pair, err := tls.X509KeyPair(k.ClientCert, k.ClientKey)
		if err != nil {
			return target{}, errors.New("the client certificate and its key are no pair")
		}
		creds.cert, creds.certSum = &pair, sha256.Sum256(append(k.ClientCert, k.ClientKey...))
	}
	creds.renewAt = renewal(now, conn.ExpiresAt)
	if creds.ends = conn.ExpiresAt; creds.ends.IsZero() {
		creds.ends = k.ExpiresAt()
	}
	return target{
		endpoint: endpoint{server: k.Server, serverName: k.ServerName, ca: string(k.CA), insecure: k.Insecure, proxy: k.ProxyURL},
		creds:    creds, warnings: k.Warnings,
	}, nil
}

// renewal is when to ask for new credentials: a fifth of their life before the end, at most five minutes, and never at
// once, so that a provider with a wrong clock is not asked without a pause.
func renewal(now, expires time.Time) time.Time {
	if expires.IsZero() {
		return time.Time{}
	}
	early := min(expires.Sub(now)/5, 5*time.Minute)
	at := expires.Add(-early)
	if soonest := now.Add(10 * time.Second); at.Before(soonest) {
		return soonest
	}
	return at
}

// tlsConfig is for targets of a kubeconfig; the client certificate is asked for at each handshake.
func (e endpoint) tlsConfig(cert *tls.Certificate) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: e.serverName, InsecureSkipVerify: e.insecure} // insecure only by the operator's switch
	if e.ca != "" {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(e.ca)) {
			return nil, errors.New("the CA holds no certificate")
		}
	}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	return cfg, nil
}

func (e endpoint) proxyFunc(environment bool) (func(*http.Request) (*url.URL, error), error) {
	if e.proxy == "" {
		if environment {
			return http.ProxyFromEnvironment, nil
		}
		return nil, nil
	}
	u, err := url.Parse(e.proxy)
	if err != nil {
		return nil, errors.New("the proxy's URL is no URL")
	}
	return http.ProxyURL(u), nil
}

// backendConfig is the environment of this process: the account of its pod, else what kubectl would use. It is trusted:
// exec plugins and files included.
func backendConfig() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if err == nil {
		return cfg, nil
	}
	if !errors.Is(err, rest.ErrNotInCluster) {
		return nil, err
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}).ClientConfig()
}

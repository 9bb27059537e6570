package kubeconfig_test

import (
	"bytes"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig/corpus"
)

// FuzzRebuild: whatever comes in, nothing breaks or hangs. What gets through is stable, client-go can use it, and client-go
// finds nothing in the original that the policy has not seen.
func FuzzRebuild(f *testing.F) {
	cases, err := corpus.Cases(places)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		if len(c.Text) < 1<<16 { // larger ones only slow the mutations down
			f.Add(c.Text, c.Options.Context, c.Options.AllowInsecure)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, context string, insecure bool) {
		o := kubeconfig.Options{Context: context, AllowInsecure: insecure, Now: corpus.Now}
		start := time.Now()
		r, err := kubeconfig.Rebuild(raw, o)
		if took := time.Since(start); took > 20*time.Second { // a hang, not a slow machine
			t.Fatalf("took %s", took)
		}
		if err != nil {
			complete(t, err)
			return
		}
		if !strings.HasPrefix(r.Server, "https://") || strings.Contains(r.Server, "@") || r.Insecure && !insecure || r.ProxyURL != "" {
			t.Fatalf("got through: server %q, insecure %v, proxy %q", r.Server, r.Insecure, r.ProxyURL)
		}
		stable(t, r, insecure)
		if original, err := clientcmd.Load(raw); err == nil {
			same(t, r, original)
		}
	})
}

// complete checks that a refusal says all that it has to.
func complete(t *testing.T, err error) {
	var refusal *kubeconfig.Refusal
	if !errors.As(err, &refusal) || len(refusal.All) == 0 {
		t.Fatalf("no refusal: %v", err)
	}
	for _, p := range refusal.All {
		if p.Class == "" || p.Problem == "" || p.Remedy == "" {
			t.Fatalf("incomplete: %#v", p)
		}
	}
}

// stable checks that the result is its own result, and that client-go reads it as it is meant.
func stable(t *testing.T, r kubeconfig.Result, insecure bool) {
	again, err := kubeconfig.Rebuild(r.YAML, kubeconfig.Options{AllowInsecure: insecure, Now: corpus.Now})
	if err != nil {
		t.Fatalf("own output is refused: %v\n%s", err, r.YAML)
	}
	if !bytes.Equal(again.YAML, r.YAML) {
		t.Fatalf("not stable:\n%s\n%s", r.YAML, again.YAML)
	}
	rebuilt, err := clientcmd.Load(r.YAML)
	if err != nil {
		t.Fatalf("client-go cannot read the output: %v\n%s", err, r.YAML)
	}
	same(t, r, rebuilt)
}

// same checks that client-go sees the same connection in c, and no field that is denied.
func same(t *testing.T, r kubeconfig.Result, c *api.Config) {
	x := c.Contexts[r.Context]
	if x == nil {
		t.Fatalf("client-go has no context %q", r.Context)
	}
	cluster := c.Clusters[x.Cluster]
	if cluster == nil {
		t.Fatalf("client-go has no cluster %q", x.Cluster)
	}
	theirs, err := url.Parse(strings.TrimSpace(cluster.Server))
	if err != nil {
		t.Fatal(err)
	}
	ours, err := url.Parse(r.Server)
	if err != nil || theirs.Host != ours.Host || strings.TrimRight(theirs.Path, "/") != ours.Path || theirs.Scheme != ours.Scheme {
		t.Errorf("server %q, for client-go %q", r.Server, cluster.Server)
	}
	if cluster.CertificateAuthority != "" || strings.TrimSpace(cluster.ProxyURL) != r.ProxyURL || cluster.InsecureSkipTLSVerify != r.Insecure ||
		strings.TrimSpace(cluster.TLSServerName) != r.ServerName || strings.TrimSpace(x.Namespace) != r.Namespace {
		t.Errorf("client-go sees another cluster: %+v, %+v", cluster, x)
	}
	user := c.AuthInfos[x.AuthInfo]
	if user == nil {
		if x.AuthInfo != "" || r.Token != "" || r.ClientCert != nil {
			t.Errorf("client-go sees no user %q", x.AuthInfo)
		}
		return
	}
	if user.Exec != nil || user.AuthProvider != nil || user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "" ||
		user.Username != "" || user.Password != "" || user.Impersonate != "" || user.ImpersonateUID != "" ||
		len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0 {
		t.Errorf("client-go sees a field that is denied: %#v", user)
	}
	if strings.TrimSpace(user.Token) != r.Token {
		t.Error("client-go sees another token")
	}
}

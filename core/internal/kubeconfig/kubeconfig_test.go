package kubeconfig

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const marker = "SECRET-MARK-1"

var now = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// pairUntil makes a self-signed certificate and its key, both base64 of PEM.
func pairUntil(t testing.TB, end time.Time) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "u"}, NotBefore: end.Add(-time.Hour * 24 * 365), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

// config is a kubeconfig in flow style with the given inner cluster and user fields.
func config(clusterFields, userFields string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c1, cluster: {%s}}]
users: [{name: u1, user: {%s}}]
contexts: [{name: x1, context: {cluster: c1, user: u1}}]
current-context: x1
`, clusterFields, userFields)
}

const goodServer = `server: "https://k8s.example:6443"`

func TestAccepts(t *testing.T) {
	cert, key := pairUntil(t, now.AddDate(1, 0, 0))
	soonCert, soonKey := pairUntil(t, now.AddDate(0, 0, 5))
	tests := map[string]struct {
		text    string
		o       Options
		check   func(Result) bool
		warning string
	}{
		"B01 only context without current-context": {
			text: strings.Replace(config(goodServer, "token: t"), "current-context: x1\n", "", 1),
			check: func(r Result) bool {
				return r.Context == "x1" && r.Server == "https://k8s.example:6443" && r.Token == "t"
			}},
		"B04 CA alone": {text: config(goodServer+", certificate-authority-data: "+cert, "token: t"),
			check: func(r Result) bool { return len(r.CA) > 0 && !r.Insecure }},
		"B04 insecure alone, allowed by the operator": {text: config(goodServer+", insecure-skip-tls-verify: true", "token: t"),
			o: Options{AllowInsecure: true}, check: func(r Result) bool { return r.Insecure }, warning: "not verified"},
		"B07 loopback": {text: config(`server: "https://127.0.0.1:6443"`, "token: t"), warning: "machine that Nagelfluh runs on"},
		"B07 ::1":      {text: config(`server: "https://[::1]:6443"`, "token: t"), warning: "machine that Nagelfluh runs on"},
		"B07 0.0.0.0":  {text: config(`server: "https://0.0.0.0"`, "token: t"), warning: "machine that Nagelfluh runs on"},
		"B07 docker":   {text: config(`server: "https://kubernetes.docker.internal:6443"`, "token: t"), warning: "machine that Nagelfluh runs on"},
		"B08 certificate ends soon": {text: config(goodServer, "client-certificate-data: "+soonCert+", client-key-data: "+soonKey),
			warning: "expires on 2026-03-06"},
		"client certificate": {text: config(goodServer, "client-certificate-data: "+cert+", client-key-data: "+key),
			check: func(r Result) bool {
				return len(r.ClientCert) > 0 && len(r.ClientKey) > 0 && r.CertNotAfter.Equal(now.AddDate(1, 0, 0))
			}},
		"B10 modest anchor": {text: `
clusters: [{name: c, cluster: {` + goodServer + `}}]
users: [{name: a, user: &u {token: t}}, {name: b, user: *u}]
contexts: [{name: x, context: {cluster: c, user: b}}]`, check: func(r Result) bool { return r.Token == "t" }},
		"B11 white space around a token":     {text: config(goodServer, `token: " t\n"`), check: func(r Result) bool { return r.Token == "t" }},
		"B15 a user without credentials":     {text: config(goodServer, ""), warning: "anonymous"},
		"other users are not judged":         {text: strings.Replace(config(goodServer, "token: t"), "users: [", "users: [{name: other, user: {exec: {command: sh}}}, ", 1)},
		"explicit context":                   {text: strings.Replace(config(goodServer, "token: t"), "contexts: [", "contexts: [{name: y, context: {cluster: c1, user: u1, namespace: team-a}}, ", 1), o: Options{Context: "y"}, check: func(r Result) bool { return r.Context == "y" && r.Namespace == "team-a" && len(r.Contexts) == 2 }},
		"extensions of minikube":             {text: config(goodServer+", extensions: [{name: cluster_info, extension: {provider: minikube.sigs.k8s.io}}]", "token: t")},
		"a path below the server":            {text: config(`server: "https://rancher.example/k8s/clusters/c-1/"`, "token: t"), check: func(r Result) bool { return r.Server == "https://rancher.example/k8s/clusters/c-1" }},
		"a listed proxy":                     {text: config(goodServer+`, proxy-url: "http://proxy.example:3128"`, "token: t"), o: Options{AllowedProxies: []string{"http://proxy.example:3128/"}}, check: func(r Result) bool { return r.ProxyURL != "" }},
		"JSON":                               {text: `{"apiVersion":"v1","clusters":[{"name":"c","cluster":{"server":"https://h"}}],"users":[{"name":"u","user":{"token":"t"}}],"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}]}`},
		"empty file path says nothing":       {text: config(goodServer+`, certificate-authority: ""`, "token: t")},
		"a document end and an empty second": {text: config(goodServer, "token: t") + "---\n"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			c.o.Now = now
			r, err := Rebuild([]byte(c.text), c.o)
			if err != nil {
				t.Fatal(err)
			}
			if c.check != nil && !c.check(r) {
				t.Errorf("unexpected result %+v", r)
			}
			if got := strings.Join(r.Warnings, " "); !strings.Contains(got, c.warning) || (c.warning == "") != (got == "") {
				t.Errorf("warnings %q, want %q", got, c.warning)
			}
			again, err := Rebuild(r.YAML, Options{AllowInsecure: c.o.AllowInsecure, AllowedProxies: c.o.AllowedProxies, Now: now})
			if err != nil {
				t.Fatalf("own output is refused: %v", err)
			}
			if diff := cmp.Diff(string(r.YAML), string(again.YAML)); diff != "" {
				t.Errorf("rebuilding twice differs:\n%s", diff)
			}
		})
	}
}

func TestRefuses(t *testing.T) {
	cert, key := pairUntil(t, now.AddDate(1, 0, 0))
	otherCert, _ := pairUntil(t, now.AddDate(1, 0, 0))
	oldCert, oldKey := pairUntil(t, now.AddDate(0, 0, -1))
	two := strings.Replace(config(goodServer, "token: t"), "contexts: [", "contexts: [{name: x2, context: {cluster: c1, user: u1}}, ", 1)
	tests := map[string]struct {
		text   string
		o      Options
		fields []string
		say    string
	}{
		"B01 several contexts, none current": {text: strings.Replace(two, "current-context: x1\n", "", 1), fields: []string{"current-context"}, say: `"x2", "x1"`},
		"B01 current-context of nothing":     {text: strings.Replace(two, "current-context: x1", "current-context: x9", 1), fields: []string{"current-context"}, say: `"x2", "x1"`},
		"B01 asked for a context of nothing": {text: two, o: Options{Context: "x9"}, fields: []string{"context"}, say: "choose one of"},
		"B03 file paths, all of them":        {text: config(goodServer+", certificate-authority: /etc/passwd", "client-certificate: a/b.crt, client-key: a/b.key, tokenFile: /run/x"), fields: []string{"clusters[0].cluster.certificate-authority", "users[0].user.client-certificate", "users[0].user.client-key", "users[0].user.tokenFile"}, say: "--flatten"},
		"B04 insecure and CA":                {text: config(goodServer+", insecure-skip-tls-verify: true, certificate-authority-data: "+cert, "token: t"), o: Options{AllowInsecure: true}, fields: []string{"clusters[0].cluster.insecure-skip-tls-verify"}, say: "certificate-authority-data"},
		"insecure without the switch":        {text: config(goodServer+", insecure-skip-tls-verify: true", "token: t"), fields: []string{"clusters[0].cluster.insecure-skip-tls-verify"}, say: "operator"},
		"B05 exec":                           {text: config(goodServer, `exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: ["-c", "touch x"]}`), fields: []string{"users[0].user.exec"}, say: "ServiceAccount"},
		"B05 auth-provider":                  {text: config(goodServer, "auth-provider: {name: gcp}"), fields: []string{"users[0].user.auth-provider"}, say: "ServiceAccount"},
		"B08 expired":                        {text: config(goodServer, "client-certificate-data: "+oldCert+", client-key-data: "+oldKey), fields: []string{"users[0].user.client-certificate-data"}, say: "expired on 2026-02-28"},
		"B10 two clusters keys":              {text: config(goodServer, "token: t") + "clusters: []\n", fields: []string{"clusters"}, say: "twice"},
		"B10 a key twice inside":             {text: config(goodServer, "token: t, token: t"), fields: []string{"users[0].user.token"}, say: "twice"},
		"B10 several documents":              {text: config(goodServer, "token: t") + "---\na: b\n", fields: []string{""}, say: "several YAML documents"},
		"B10 merge key":                      {text: "a: &a {b: c}\n<<: *a\n", fields: []string{""}, say: "merge"},
		"B11 broken base64":                  {text: config(goodServer+", certificate-authority-data: "+marker+"!!", "token: "+marker), fields: []string{"clusters[0].cluster.certificate-authority-data"}, say: "base64"},
		"B11 space inside a token":           {text: config(goodServer, `token: "`+marker+`\nx"`), fields: []string{"users[0].user.token"}, say: "token"},
		"B11 broken YAML with a secret":      {text: "users: [{token: " + marker, fields: []string{""}, say: "neither valid YAML"},
		"http":                               {text: config(`server: "http://h"`, "token: t"), fields: []string{"clusters[0].cluster.server"}, say: "https"},
		"no scheme":                          {text: config(`server: "h:6443"`, "token: t"), fields: []string{"clusters[0].cluster.server"}, say: "https"},
		"userinfo":                           {text: config(`server: "https://u:`+marker+`@h"`, "token: t"), fields: []string{"clusters[0].cluster.server"}, say: "password"},
		"bad URL":                            {text: config(`server: "https://`+marker+`:x%zz"`, "token: t"), fields: []string{"clusters[0].cluster.server"}},
		"query":                              {text: config(`server: "https://h/?a=b"`, "token: t"), fields: []string{"clusters[0].cluster.server"}},
		"bad port":                           {text: config(`server: "https://h:99999"`, "token: t"), fields: []string{"clusters[0].cluster.server"}},
		"no server":                          {text: config("", "token: t"), fields: []string{"clusters[0].cluster.server"}},
		"impersonation":                      {text: config(goodServer, "token: t, as: admin, as-groups: [a], as-uid: x, as-user-extra: {a: [b]}"), fields: []string{"users[0].user.as", "users[0].user.as-groups", "users[0].user.as-uid", "users[0].user.as-user-extra"}},
		"basic auth":                         {text: config(goodServer, "username: u, password: "+marker), fields: []string{"users[0].user.password", "users[0].user.username"}},
		"proxy that is not listed":           {text: config(goodServer+`, proxy-url: "http://p"`, "token: t"), fields: []string{"clusters[0].cluster.proxy-url"}, say: "operator"},
		"unknown field":                      {text: config(goodServer, "token: t, tokn: t"), fields: []string{"users[0].user.tokn"}},
		"unknown top-level field":            {text: config(goodServer, "token: t") + "cluster: []\n", fields: []string{"cluster"}},
		"certificate without key":            {text: config(goodServer, "client-certificate-data: "+cert), fields: []string{"users[0].user.client-key-data"}, say: "missing"},
		"key of another certificate":         {text: config(goodServer, "client-certificate-data: "+otherCert+", client-key-data: "+key), fields: []string{"users[0].user.client-certificate-data"}, say: "no pair"},
		"a key where the CA should be":       {text: config(goodServer+", certificate-authority-data: "+key, "token: t"), fields: []string{"clusters[0].cluster.certificate-authority-data"}, say: "certificates"},
		"base64 of no PEM":                   {text: config(goodServer+", certificate-authority-data: aGVsbG8=", "token: t"), fields: []string{"clusters[0].cluster.certificate-authority-data"}, say: "PEM"},
		"user that is not there":             {text: strings.Replace(config(goodServer, "token: t"), "user: u1}", "user: u9}", 1), fields: []string{"contexts[0].context.user"}},
		"cluster that is not there":          {text: strings.Replace(config(goodServer, "token: t"), "cluster: c1, user", "cluster: c9, user", 1), fields: []string{"contexts[0].context.cluster"}},
		"a name twice":                       {text: strings.Replace(config(goodServer, "token: t"), "users: [", "users: [{name: u1, user: {token: other}}, ", 1), fields: []string{"users[1].name"}},
		"namespace that is none":             {text: strings.Replace(config(goodServer, "token: t"), "user: u1}", `user: u1, namespace: "A b"}`, 1), fields: []string{"contexts[0].context.namespace"}},
		"empty":                              {text: " \n", fields: []string{""}, say: "empty"},
		"a list":                             {text: "- a\n", fields: []string{""}},
		"a scalar":                           {text: "hello", fields: []string{""}},
		"not UTF-8":                          {text: "a: \xff\xfe", fields: []string{""}},
		"another kind":                       {text: strings.Replace(config(goodServer, "token: t"), "kind: Config", "kind: Secret", 1), fields: []string{"kind"}},
		"a mapping where a text should be":   {text: config("server: {a: b}", "token: t"), fields: []string{"clusters[0].cluster.server", "clusters[0].cluster.server"}},
		"insecure that is no boolean":        {text: config(goodServer+`, insecure-skip-tls-verify: "true"`, "token: t"), fields: []string{"clusters[0].cluster.insecure-skip-tls-verify"}},
		"no contexts":                        {text: "apiVersion: v1\n", fields: []string{"contexts"}},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			c.o.Now = now
			r, err := Rebuild([]byte(c.text), c.o)
			var refusal *Refusal
			if !errors.As(err, &refusal) {
				t.Fatalf("not refused: %+v, %v", r.Context, err)
			}
			var fields []string
			for _, p := range refusal.All {
				fields = append(fields, p.Field)
			}
			if diff := cmp.Diff(c.fields, fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s\n%v", diff, err)
			}
			if !strings.Contains(err.Error(), c.say) {
				t.Errorf("error %q does not say %q", err, c.say)
			}
			if strings.Contains(err.Error(), marker) || strings.Contains(err.Error(), key) {
				t.Errorf("error quotes a secret: %q", err)
			}
			if diff := cmp.Diff(Result{}, r); diff != "" {
				t.Errorf("a refused text gave a result:\n%s", diff)
			}
		})
	}
}

func TestRefusalHasTheLineAndColumn(t *testing.T) {
	_, err := Rebuild([]byte("apiVersion: v1\nclusters:\n- name: c\n  cluster:\n    server: http://h\ncontexts:\n- name: x\n  context: {cluster: c}\n"), Options{})
	var r *Refusal
	if !errors.As(err, &r) || r.Line != 5 || r.Column != 13 || !strings.Contains(err.Error(), "(line 5, column 13)") {
		t.Fatalf("got %v, want the refusal on line 5, column 13", err)
	}
}

// B10: a bomb and a huge text are refused at once and without much memory.
func TestB10Bombs(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("a: &a [x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c <= 'j'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	for name, text := range map[string]string{
		"aliases":       bomb.String() + config(goodServer, "token: t"),
		"self":          "a: &a [*a]\n",
		"20 MB":         config(goodServer, "token: t") + "#" + strings.Repeat("x", 20<<20),
		"open brackets": strings.Repeat("[", MaxSize),
		"open maps":     strings.Repeat(`{"a":`, MaxSize/6),
		"deep blocks":   deepBlocks(),
		"many keys":     manyKeys(),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, err := Rebuild([]byte(text), Options{})
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatal("accepted")
			}
			if took > 5*time.Second { // far above what it takes, for machines that are busy with other tests
				t.Errorf("took %s", took)
			}
			// All that was ever allocated; what is held at one moment is far less.
			if mb := (after.TotalAlloc - before.TotalAlloc) >> 20; mb > 50 {
				t.Errorf("allocated %d MB", mb)
			}
		})
	}
}

func deepBlocks() string {
	var b bytes.Buffer
	for i := 0; b.Len() < MaxSize-2000 && i < 1400; i++ {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func manyKeys() string {
	var b bytes.Buffer
	for i := 0; b.Len() < MaxSize-20; i++ {
		fmt.Fprintf(&b, "k%d: v\n", i)
	}
	return b.String()
}

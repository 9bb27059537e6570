package kubeconfigprovider_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/nagelfluh/nagelfluh/sdk"
	"github.com/nagelfluh/nagelfluh/sdk/conformance"
	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/plugintest"
	"github.com/nagelfluh/nagelfluh/sdk/provider/kubeconfigprovider"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "s3cr3t-bearer-token"

const twoContexts = `
apiVersion: v1
kind: Config
current-context: one
preferences: {colors: true}
contexts:
- name: one
  context: {cluster: c1, user: u1, namespace: jobs}
- name: 2
  context: {cluster: c2, user: u2}
clusters:
- name: c1
  cluster: {server: "https://one.example:6443", insecure-skip-tls-verify: true}
- name: c2
  cluster: {server: "https://two.example:6443"}
users:
- name: u1
  user: {token: ` + secret + `}
- name: u2
  user: {token: 0123}
`

// one is what twoContexts comes to.
const one = `{"apiVersion":"v1","clusters":[{"cluster":{"insecure-skip-tls-verify":true,"server":"https://one.example:6443"},"name":"c1"}],` +
	`"contexts":[{"context":{"cluster":"c1","namespace":"jobs","user":"u1"},"name":"one"}],"current-context":"one","kind":"Config",` +
	`"users":[{"name":"u1","user":{"token":"` + secret + `"}}]}`

func newProvider() *kubeconfigprovider.Provider {
	return kubeconfigprovider.New(kubeconfigprovider.Options{Type: "pasted", Title: "Pasted", HelpCommand: "kubectl config view --raw"})
}

func config(t *testing.T, kubeconfig any, context string) string {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"kubeconfig": kubeconfig, "context": context})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestForms(t *testing.T) {
	p := plugintest.Provider(t, newProvider(), "")
	var mapping any
	if err := json.Unmarshal([]byte(one), &mapping); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]string{
		"YAML": config(t, twoContexts, ""), "JSON": config(t, one, ""), "mapping": config(t, mapping, ""), "named": config(t, twoContexts, "one"),
	} {
		t.Run(name, func(t *testing.T) {
			valid, err := p.ValidateConfig(t.Context(), "pasted", in)
			if err != nil {
				t.Fatal(err)
			}
			var stored kubeconfigprovider.Config
			if err := json.Unmarshal(valid.Config.(json.RawMessage), &stored); err != nil || string(stored.Kubeconfig) != one {
				t.Errorf("stored %v, %v", stored, err)
			}
			connection, err := p.Connect(t.Context(), "c", "pasted", in)
			if err != nil || string(connection.Kubeconfig) != one {
				t.Errorf("connected with %s, %v", connection.Kubeconfig, err)
			}
		})
	}
	t.Run("another context", func(t *testing.T) {
		connection, err := p.Connect(t.Context(), "c", "pasted", config(t, twoContexts, "2"))
		if err != nil || !strings.Contains(string(connection.Kubeconfig), `"token":"0123"`) || strings.Contains(string(connection.Kubeconfig), secret) {
			t.Errorf("connected with %s, %v", connection.Kubeconfig, err)
		}
	})
	t.Run("escapes of JSON", func(t *testing.T) {
		in := strings.Replace(one, secret, `\ud83d\ude00\/<&>`, 1)
		connection, err := p.Connect(t.Context(), "c", "pasted", config(t, in, ""))
		if err != nil || !strings.Contains(string(connection.Kubeconfig), `"token":"😀/<&>"`) {
			t.Errorf("connected with %s, %v", connection.Kubeconfig, err)
		}
	})
}

// bomb is a few lines that stand for a million values.
func bomb() string {
	text := "a0: &a0 [" + secret + "]\n"
	for i := range 6 {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return text
}

// An alias is no more than what it stands for.
func TestAliases(t *testing.T) {
	p := plugintest.Provider(t, newProvider(), "")
	plain := strings.NewReplacer("USER", "{token: "+secret+"}").Replace(aliased)
	got, err := p.ValidateConfig(t.Context(), "pasted", config(t, plain, ""))
	if err != nil {
		t.Fatal(err)
	}
	want, err := p.ValidateConfig(t.Context(), "pasted", config(t, strings.NewReplacer("&u ", "", "*u", "{token: "+secret+"}").Replace(plain), ""))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v, %v", got, want, err)
	}
}

const aliased = `kind: Config
current-context: one
clusters: [{name: c, cluster: {server: "https://c.example"}}]
contexts: [{name: one, context: {cluster: c, user: b}}]
users: [{name: a, user: &u USER}, {name: b, user: *u}]
`

func TestRefuses(t *testing.T) {
	p := plugintest.Provider(t, newProvider(), "")
	tests := map[string]struct{ kubeconfig, context, path, says string }{
		"empty":            {"", "", "/kubeconfig", "empty"},
		"prose":            {"my " + secret, "", "/kubeconfig", "not a mapping"},
		"broken":           {"a: b\n  " + secret + ": [", "", "/kubeconfig", "see line"},
		"twice":            {"a: 1\na: " + secret, "", "/kubeconfig", "twice"},
		"two documents":    {twoContexts + "\n---\na: b", "", "/kubeconfig", "more than one document"},
		"twice in JSON":    {`{"a": 1,` + "\n" + `"a": "` + secret + `"}`, "", "/kubeconfig", "twice; the second one is at line 2"},
		"twice within":     {`{"a": [{"b": 1, "b": "` + secret + `"}]}`, "", "/kubeconfig", "twice"},
		"deep JSON":        {strings.Repeat("[", 50) + strings.Repeat("]", 50), "", "/kubeconfig", "too deep"},
		"aliases":          {bomb(), "", "/kubeconfig", "unfold into too much"},
		"own alias":        {"a: &a [*a]", "", "/kubeconfig", "too deep"},
		"merge":            {"a: &a {}\nb:\n  <<: *a", "", "/kubeconfig", "not text"},
		"deep":             {"a: " + strings.Repeat("[", 50) + strings.Repeat("]", 50), "", "/kubeconfig", "too deep"},
		"binary":           {"a: !!binary aGk=", "", "/kubeconfig", "unusual kind"},
		"a pod":            {"kind: Pod", "", "/kubeconfig", "another kind"},
		"no context":       {"kind: Config", "", "/kubeconfig", "no context"},
		"unknown context":  {twoContexts, "three", "/context", `it has "one", "2"`},
		"no current":       {strings.Replace(twoContexts, "current-context: one", "", 1), "", "/context", `choose one of "one", "2"`},
		"no such cluster":  {strings.Replace(twoContexts, "name: c1", "name: c9", 1), "", "/kubeconfig", `no cluster "c1"`},
		"no such user":     {strings.Replace(twoContexts, "name: u1", "name: u9", 1), "", "/kubeconfig", `no user "u1"`},
		"cluster twice":    {strings.Replace(twoContexts, "name: c2", "name: c1", 1), "", "/kubeconfig", "more than once"},
		"empty user":       {strings.Replace(twoContexts, "user: {token: "+secret+"}", "user:", 1), "", "/kubeconfig", "is empty"},
		"nothing":          {"null", "", "/kubeconfig", "not a mapping"},
		"control sequence": {"\x00\x01", "", "/kubeconfig", "neither YAML nor JSON"},
		"more than a MiB":  {"# " + strings.Repeat("x", 1<<20), "", "/kubeconfig", "more than 1 MiB"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := config(t, test.kubeconfig, test.context)
			_, err := p.ValidateConfig(t.Context(), "pasted", in)
			var errs field.Errors
			if !errors.As(err, &errs) || errs[0].Path != test.path || !strings.Contains(errs[0].Message, test.says) {
				t.Errorf("got %v", err)
			}
			_, connect := p.Connect(t.Context(), "c", "pasted", in)
			if plugintest.CodeOf(connect) != codes.InvalidArgument {
				t.Errorf("Connect: %v", connect)
			}
			for _, e := range []error{err, connect} {
				if e != nil && strings.Contains(e.Error(), secret) {
					t.Errorf("the secret is shown: %v", e)
				}
			}
		})
	}
}

func TestConformance(t *testing.T) {
	conformance.Provider(t, conformance.InMemory(sdk.Info{Name: "pasted", Version: "1"}, func() any { return newProvider() }),
		conformance.WithCluster("pasted", config(t, twoContexts, "")))
}

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig"
	"github.com/nagelfluh/nagelfluh/core/internal/kubeconfig/corpus"
)

func TestKubeconfigCheckShowsNoSecret(t *testing.T) {
	cases, err := corpus.Cases(corpus.Places{Canary: "/nowhere", Listener: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		// The clock is the machine's here, so dates are left to the policy's own tests.
		if strings.Contains(c.Name, "soon") || strings.Contains(c.Name, "future") || len(c.Text) > kubeconfig.MaxSize {
			continue
		}
		args := []string{"kubeconfig", "check", "-", "--context=" + c.Options.Context}
		if c.Options.AllowInsecure {
			args = append(args, "--allow-insecure")
		}
		for _, p := range c.Options.AllowedProxies {
			args = append(args, "--allow-proxy", p)
		}
		for _, output := range []string{"table", "json"} {
			code, out, errs := execute(t, nil, string(c.Text), append(args, "-o", output)...)
			if want := min(len(c.Problems), 1); code != want {
				t.Errorf("%s: exit code %d, want %d: %s%s", c.Name, code, want, out, errs)
			}
			if strings.Contains(out+errs, corpus.Marker) || strings.Contains(out+errs, "PRIVATE KEY") || strings.ContainsRune(out+errs, '\x1b') {
				t.Errorf("%s: a secret is shown: %s%s", c.Name, out, errs)
			}
			if output == "json" {
				var v verdict
				if err := json.Unmarshal([]byte(out), &v); err != nil || v.Accepted != (len(c.Problems) == 0) || len(v.Problems) != len(c.Problems) {
					t.Errorf("%s: %v: %s", c.Name, err, out)
				}
			}
		}
	}
}

func TestKubeconfigCheck(t *testing.T) {
	text := `apiVersion: v1
clusters:
- name: c1
  cluster: {server: "https://127.0.0.1:6443"}
users:
- name: u1
  user: {token: SECRET-MARK-1}
- name: u2
  user:
    exec: {command: sh}
contexts:
- name: prod
  context: {cluster: c1, user: u1, namespace: jobs}
- name: dev
  context: {cluster: c1, user: u2}
`
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		in   string
		args []string
		code int
		want []string // parts of what is shown
	}{
		"accepted": {"", []string{file, "--context", "prod"}, 0,
			[]string{"https://127.0.0.1:6443", "sha256:", "namespace", "jobs", "warning", "machine that Nagelfluh runs on"}},
		"refused": {"", []string{file, "--context", "dev"}, 1,
			[]string{"10:5", "users[1].user.exec", "would start a program", "ServiceAccount", "refused: 1 problem"}},
		"several contexts":   {text, []string{"-"}, 1, []string{`choose one of "prod", "dev"`}},
		"contexts in JSON":   {text, []string{"-", "-o", "json"}, 1, []string{`"contexts"`, `"ambiguous"`}},
		"too large":          {text + strings.Repeat(" ", kubeconfig.MaxSize), []string{"-"}, 1, []string{"larger than"}},
		"no file":            {"", []string{file + "x"}, 1, []string{"no such file"}},
		"no argument":        {"", nil, 2, []string{"wants a file"}},
		"a flag of no sense": {"", []string{file, "--exec"}, 2, []string{"unknown flag"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// No server is needed: this address answers nobody.
			code, out, errs := execute(t, []string{"NAGELFLUH_SERVER=http://127.0.0.1:1"}, test.in, append([]string{"kubeconfig", "check"}, test.args...)...)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, part := range test.want {
				if !strings.Contains(out+errs, part) {
					t.Errorf("%q is not in:\n%s%s", part, out, errs)
				}
			}
			if strings.Contains(out+errs, corpus.Marker) {
				t.Errorf("the token is shown:\n%s", out)
			}
		})
	}
}

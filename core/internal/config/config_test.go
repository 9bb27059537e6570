package config_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/config"
)

var update = flag.Bool("update", false, "write the example file")

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "nagelfluh.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheLaterWins(t *testing.T) {
	path := file(t, "listen: 1.1.1.1:1\ndefault_namespace: from-file\nlog: {level: debug}\n")
	c, err := config.Load(config.Input{
		File:  path,
		Env:   []string{"NAGELFLUH_LISTEN=2.2.2.2:2", "K8S_NAMESPACE=from-env"},
		Flags: map[string][]string{"listen": {"3.3.3.3:3"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Listen, c.DefaultNamespace, c.LogLevel, c.Sources["listen"], c.Sources["default_namespace"], c.Sources["log.level"], c.Sources["log.format"]}
	want := []string{"3.3.3.3:3", "from-env", "debug", "flag --listen", "environment K8S_NAMESPACE", "file " + path, "default"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestFaults(t *testing.T) {
	tests := map[string]struct {
		yaml string
		env  []string
		says string
	}{
		"unknown key":         {yaml: "lisen: x", says: "lisen in FILE is no setting; is listen meant?"},
		"unknown nested key":  {yaml: "log: {lvel: info}", says: "log.lvel in FILE is no setting; is log.level meant?"},
		"twice":               {yaml: "listen: a:1\nlisten: b:2", says: "is already set"},
		"not YAML":            {yaml: "a: [", says: "not valid YAML"},
		"wrong choice":        {yaml: "log: {level: loud}", says: "want one of trace"},
		"list for text":       {yaml: "listen: [a]", says: "want one value"},
		"bad duration":        {env: []string{"NAGELFLUH_JOBS_RETENTION=soon"}, says: "environment variable NAGELFLUH_JOBS_RETENTION"},
		"bad address":         {yaml: "listen: nowhere", says: "want host:port"},
		"bad database":        {env: []string{"NAGELFLUH_DATABASE=mysql://u:geheim@h/x"}, says: "neither sqlite"},
		"keyset in database":  {env: []string{"NAGELFLUH_DATABASE=sqlite:/x/n.db", "NAGELFLUH_SECRETS_KEYSET_FILE=/x/n.db"}, says: "outside of it"},
		"plugin name":         {yaml: "plugins: {gpu: {}}", says: "provider- or selector-"},
		"plugin key":          {yaml: "plugins: {selector-gpu: {requird: true}}", says: "unknown field"},
		"plugin policy":       {yaml: "plugins: {selector-gpu: {on_error: shrug}}", says: "want fail or ignore"},
		"plugin pin":          {yaml: "plugins: {selector-gpu: {sha256: abc}}", says: "64 hex digits"},
		"network":             {yaml: "kube: {allow_cidrs: [10.0.0.1]}", says: "no network"},
		"scalar for a group":  {yaml: "log: info", says: "log in FILE is no setting"},
		"no such file at all": {says: "read the configuration"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := file(t, test.yaml)
			if name == "no such file at all" {
				path += ".absent"
			}
			_, err := config.Load(config.Input{File: path, Env: test.env})
			if err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(test.says, "FILE", path)) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Error("the error shows a password")
			}
		})
	}
}

func TestEveryFaultAtOnce(t *testing.T) {
	_, err := config.Load(config.Input{File: file(t, "a: 1\nb: 2\n"), Env: []string{"NAGELFLUH_LOG_LEVEL=x"}})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three faults, got %v", err)
	}
}

func TestUnknownVariableWarns(t *testing.T) {
	c, err := config.Load(config.Input{Env: []string{"NAGELFLUH_LISTN=x", "NAGELFLUH_SERVICE_HOST=10.0.0.1", "NAGELFLUH_PORT=tcp://10.0.0.1:80"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "NAGELFLUH_LISTN") {
		t.Errorf("got %v", c.Warnings)
	}
}

func TestShowMasks(t *testing.T) {
	c, err := config.Load(config.Input{Env: []string{
		"NAGELFLUH_DATABASE=postgres://u:geheim@h/x?sslpassword=geheim", "REGISTRY_PASSWORD=geheim",
		`NAGELFLUH_PLUGINS={"selector-gpu":{"config":{"token":"geheim"}}}`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Show() {
		if text := cmp.Diff("", s.Value); strings.Contains(text, "geheim") {
			t.Errorf("%s shows its secret: %v", s.Key, s.Value)
		}
	}
}

// The example in the docs is generated, complete, and means the defaults.
func TestExample(t *testing.T) {
	const path = "../../../docs/operations/nagelfluh.example.yaml"
	if *update {
		if err := os.WriteFile(path, []byte(config.Example()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(config.Example(), string(stored)); d != "" {
		t.Errorf("run `go test ./internal/config -update`: %s", d)
	}
	fromFile, err := config.Load(config.Input{File: path})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := config.Load(config.Input{})
	if err != nil {
		t.Fatal(err)
	}
	for key, source := range fromFile.Sources {
		if source == "default" {
			t.Errorf("%s is not in the example", key)
		}
	}
	fromFile.Sources, plain.Sources = nil, nil
	if len(fromFile.Plugins) == 0 {
		fromFile.Plugins = nil
	}
	if d := cmp.Diff(plain, fromFile); d != "" {
		t.Error(d)
	}
}

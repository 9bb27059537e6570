package kubeconfig

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// fieldsOf lists the fields of a kubeconfig as client-go knows them. Lists other than those of the three kinds of entries,
// exec, auth-provider and preferences count as one field each.
func fieldsOf(prefix string, of reflect.Type, out map[string]reflect.Type) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		path := prefix + name
		inner := f.Type
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct && name != "extensions" {
			path, inner = path+"[]", inner.Elem()
		}
		if inner.Kind() == reflect.Struct && name != "preferences" {
			fieldsOf(path+".", inner, out)
			continue
		}
		out[path] = f.Type
	}
}

// TestEveryFieldIsDocumented holds the table of docs/kubeconfig.md to client-go's types, and the policy to the table.
func TestEveryFieldIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/kubeconfig.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]reflect.Type{}
	fieldsOf("", reflect.TypeFor[v1.Config](), known)
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = m[2]
	}
	for path := range documented {
		if known[path] == nil {
			t.Errorf("%s is in the table and no field of a kubeconfig", path)
		}
	}
	for path, kind := range known {
		t.Run(path, func(t *testing.T) {
			want := documented[path]
			if want == "" {
				t.Fatal("is missing in the table")
			}
			if got := happens(t, path, kind); got != want {
				t.Errorf("the table says %q, the policy %q", want, got)
			}
		})
	}
}

// happens tries a field and says in the words of the table what the policy does with it.
func happens(t *testing.T, path string, kind reflect.Type) string {
	t.Helper()
	config := full(t)
	given, there := get(config, path)
	if !there {
		given = sample(kind)
		if strings.HasSuffix(path, "proxy-url") {
			given = "http://proxy.example:3128"
		}
		set(config, path, given)
	}
	if strings.HasSuffix(path, "insecure-skip-tls-verify") {
		delete(config["clusters"].([]any)[0].(map[string]any)["cluster"].(map[string]any), "certificate-authority-data")
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Rebuild(raw, Options{Now: now})
	allowed := ""
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if want := strings.ReplaceAll(path, "[]", "[0]"); len(refusal.All) != 1 || refusal.Field != want {
			t.Fatalf("refused for something else: %v", err)
		}
		if r, err = Rebuild(raw, Options{Now: now, AllowInsecure: true, AllowedProxies: []string{"http://proxy.example:3128"}}); err != nil {
			return "refused"
		}
		allowed = "refused unless allowed"
	}
	var out map[string]any
	if err := yaml.Unmarshal(r.YAML, &out); err != nil {
		t.Fatal(err)
	}
	got, there := get(out, path)
	switch {
	case !there:
		return "left out"
	case allowed != "":
		return allowed
	case path == "apiVersion" || path == "kind" || path == "current-context" || !cmp.Equal(given, got):
		return "rewritten"
	}
	return "kept"
}

// full is a kubeconfig with every field that is not refused and says something.
func full(t *testing.T) map[string]any {
	t.Helper()
	cert, key := pairUntil(t, now.AddDate(1, 0, 0))
	text := strings.Replace(config(goodServer+", tls-server-name: k8s, certificate-authority-data: "+cert,
		"token: t, client-certificate-data: "+cert+", client-key-data: "+key), "user: u1}", "user: u1, namespace: jobs}", 1)
	var out map[string]any
	if err := yaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func sample(kind reflect.Type) any {
	switch kind.Kind() {
	case reflect.Bool:
		return true
	case reflect.Slice:
		return []any{"x"}
	case reflect.Map:
		return map[string]any{"x": []any{"y"}}
	case reflect.Pointer, reflect.Struct:
		return map[string]any{"name": "x"}
	}
	return "x"
}

// holder returns the mapping that a path leads to, and the last name of the path; [] is the first entry.
func holder(in map[string]any, path string) (map[string]any, string) {
	parts := strings.Split(path, ".")
	for _, p := range parts[:len(parts)-1] {
		if list, found := strings.CutSuffix(p, "[]"); found {
			in = in[list].([]any)[0].(map[string]any)
		} else {
			in = in[p].(map[string]any)
		}
	}
	return in, parts[len(parts)-1]
}

func get(in map[string]any, path string) (any, bool) {
	m, name := holder(in, path)
	v, there := m[name]
	return v, there
}

func set(in map[string]any, path string, v any) {
	m, name := holder(in, path)
	m[name] = v
}

package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A token may look like a number, a date or a word of YAML: what the type's schema has as text is sent as it was written,
// and so is what the schema does not tell of, unless it is plainly a number or a truth.
func TestTokensStayText(t *testing.T) {
	var added object
	env := server(t, map[string]http.HandlerFunc{
		"GET /cluster-types": answer(200, object{"items": []object{{"type": "t", "served": true, "config_schema": object{"properties": object{
			"token": object{"type": "string", "x-nagelfluh-secret": true}, "open": object{},
		}}}}}),
		"POST /clusters": func(w http.ResponseWriter, r *http.Request) {
			added = nil
			if err := json.NewDecoder(r.Body).Decode(&added); err != nil {
				t.Error(err)
			}
			answer(201, object{"name": "n", "active": true})(w, r)
		},
	})
	file := filepath.Join(t.TempDir(), "config.yaml")
	for written, want := range map[string]any{
		"0123": "0123", "1e5": "1e5", "0x1F": "0x1F", "0o17": "0o17", "1_000": "1_000", "+1": "+1", "1.50": "1.50", ".5": ".5", ".inf": ".inf", "yes": "yes", "No": "No", "TRUE": true,
		"2026-03-01": "2026-03-01", "12345678901234567890": "12345678901234567890", "9007199254740993": "9007199254740993",
		"6443": 6443.0, "-7": -7.0, "0": 0.0, "1.5": 1.5, "true": true, "false": false,
	} {
		if err := os.WriteFile(file, []byte("token: "+written+"\nin: {deep: ["+written+"]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, errs := execute(t, env, "", "clusters", "add", "n", "--type", "t", "--provider-config", file)
		if code != 0 {
			t.Fatalf("%s: %s", written, errs)
		}
		if d := cmp.Diff(any(object{"token": written, "in": map[string]any{"deep": []any{want}}}), any(object(added["provider_config"].(map[string]any)))); d != "" {
			t.Errorf("%s: %s", written, d)
		}
		if code, _, errs := execute(t, env, written+"\n", "clusters", "add", "n", "--type", "t", "--token", "-", "--open", written); code != 0 {
			t.Fatalf("%s: %s", written, errs)
		}
		if d := cmp.Diff(any(map[string]any{"token": written, "open": written}), added["provider_config"]); d != "" {
			t.Errorf("by flags: %s: %s", written, d)
		}
	}
}

// Nothing that a server says moves the cursor, colours or retitles the terminal of who reads it, in tables and in errors.
func TestNothingPlaysWithTheTerminal(t *testing.T) {
	const evil = "a\x1b[2J\x1b]0;title\x07b\u009b31mc\u202ed\x7fe\r\x08f"
	env := server(t, map[string]http.HandlerFunc{
		"GET /clusters":     answer(200, object{"items": []object{{"id": "c", "name": evil, "type": evil, "message": evil, "labels": object{evil: evil}}}}),
		"GET /clusters/gpu": answer(404, object{"status": 404, "code": "not_found", "title": evil, "detail": evil}),
		"GET /plugins":      answer(200, object{"items": []object{{"name": evil, "kind": "provider", "state": "failed", "last_error": evil, "path": evil}}}),
	})
	for _, args := range [][]string{{"clusters", "list"}, {"clusters", "get", "gpu"}, {"plugins", "list"}} {
		_, out, errs := execute(t, env, "", args...)
		if !strings.Contains(out+errs, "?[2J") {
			t.Errorf("%v says %q %q", args, out, errs)
		}
		if i := strings.IndexAny(out+errs, "\x1b\x07\x08\x7f\r\u009b\u202e"); i >= 0 {
			t.Errorf("%v lets %q through", args, (out + errs)[i:])
		}
	}
}

func TestFilesHaveABound(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(dir, "whole")
	if err := os.WriteFile(whole, make([]byte, maxFile), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, says := range map[string]string{
		large: "more than 8 MiB", "/dev/zero": "more than 8 MiB", dir: "is a directory", filepath.Join(dir, "none"): "no such file",
		"{\"token\": \"geheim\"}": "a text stands where the path", "apiVersion: v1\ntoken: geheim": "a text stands where the path", whole: "",
	} {
		raw, err := readFile(file, nil)
		if says == "" {
			if err != nil || len(raw) != maxFile {
				t.Errorf("%s: %d bytes, %v", file, len(raw), err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := readFile("-", bytes.NewReader(make([]byte, maxFile+1))); err == nil || !strings.Contains(err.Error(), "standard input has more than 8 MiB") {
		t.Error(err)
	}
}

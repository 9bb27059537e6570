package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server plays the API with the given routes ("METHOD /path").
func server(t *testing.T, routes map[string]http.HandlerFunc) []string {
	t.Helper()
	mux := http.NewServeMux()
	for pattern, h := range routes {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /api/v1"+path, h)
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		srv.Close()
	})
	return []string{"NAGELFLUH_SERVER=" + srv.URL, "NAGELFLUH_API_KEY=ngf_x_y"}
}

func execute(t *testing.T, env []string, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Execute(t.Context(), args, Streams{In: strings.NewReader(in), Out: &o, Err: &e, Env: env})
	return code, o.String(), e.String()
}

func answer(status int, v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		kind := "application/json"
		if status >= 400 {
			kind = "application/problem+json"
		}
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
}

func events(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, ": open\n\n"+text)
	w.(http.Flusher).Flush()
}

// job plays a version whose log breaks once and ends as told.
func job(t *testing.T, end string) []string {
	t.Helper()
	v := object{"id": "v1", "number": 1, "process_name": "p", "state": "running", "attempt": object{"cluster_id": "c", "cluster_name": "gpu"}}
	var opened atomic.Int32
	return server(t, map[string]http.HandlerFunc{
		"POST /projects/default/processes": answer(201, v),
		"GET /versions/v1":                 answer(200, v),
		"GET /versions/v1/events": func(w http.ResponseWriter, _ *http.Request) {
			events(w, "id: 1\nevent: decided\ndata: {\"kind\":\"decided\",\"cluster_id\":\"c\",\"message\":\"it has room\"}\n\nevent: end\ndata: {}\n\n")
		},
		"GET /versions/v1/logs": func(w http.ResponseWriter, r *http.Request) {
			if opened.Add(1) == 1 {
				events(w, "id: a\nevent: log\ndata: {\"text\":\"one\\n\"}\n\nid: b\nevent: log\ndata: {\"text\":\"cut of")
				return
			}
			if got := r.Header.Get("Last-Event-ID"); got != "a" {
				t.Errorf("resumed behind %q, want a", got)
			}
			events(w, "id: b\nevent: log\ndata: {\"text\":\"\ufffd\",\"raw\":\"/w==\"}\n\nid: c\nevent: end\ndata: "+end+"\n\n")
		},
	})
}

type object = map[string]any

func TestRunExitCodes(t *testing.T) {
	tests := map[string]struct {
		end  string
		code int
	}{
		"succeeded":         {`{"state":"succeeded","exit_code":0,"complete":true}`, 0},
		"failed with 3":     {`{"state":"failed","exit_code":3,"complete":true}`, 3},
		"failed without":    {`{"state":"failed","complete":true}`, 1},
		"failed although 0": {`{"state":"failed","exit_code":0,"complete":true}`, 1},
		"cancelled":         {`{"state":"cancelled","exit_code":137,"complete":true}`, 130},
		"unknown":           {`{"state":"unknown","complete":true}`, 121},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, out, errs := execute(t, job(t, test.end), "", "run", "--image", "busybox")
			if code != test.code {
				t.Errorf("exit code %d, want %d: %s", code, test.code, errs)
			}
			if out != "one\n\xff" {
				t.Errorf("standard output %q", out)
			}
			if !strings.Contains(errs, "placed on gpu: it has room") {
				t.Errorf("standard error %q", errs)
			}
		})
	}
}

func TestRunRefused(t *testing.T) {
	env := server(t, map[string]http.HandlerFunc{
		"POST /projects/default/processes": answer(422, object{"code": "invalid", "detail": "2 fields are wrong", "status": 422, "errors": []object{
			{"field": "name", "message": "is missing"}, {"field": "spec.image", "message": "has a blank"},
		}}),
	})
	code, out, errs := execute(t, env, "", "run", "--image", "busybox")
	if code != ExitNotAccepted || out != "" {
		t.Errorf("exit code %d, output %q", code, out)
	}
	if want := "nagelfluh: 2 fields are wrong (invalid)\n  name: is missing\n  spec.image: has a blank\n"; errs != want {
		t.Errorf("got %q", errs)
	}
}

func TestSubmitIsRepeatedUnderOneKey(t *testing.T) {
	var keys []string
	env := server(t, map[string]http.HandlerFunc{
		"POST /projects/default/processes": func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			if len(keys) == 1 {
				panic(http.ErrAbortHandler)
			}
			answer(200, object{"id": "v1"})(w, r)
		},
	})
	code, out, errs := execute(t, env, "", "run", "--image", "busybox", "--detach")
	if code != 0 || out != "v1\n" || len(keys) != 2 || keys[0] != keys[1] || keys[0] == "" {
		t.Errorf("exit code %d, output %q, keys %v: %s", code, out, keys, errs)
	}
}

func TestUsage(t *testing.T) {
	key := []string{"NAGELFLUH_API_KEY=ngf_x_y"}
	tests := map[string]struct {
		args []string
		env  []string
		says string
	}{
		"unknown command":    {args: []string{"frobnicate"}, says: "unknown command"},
		"unknown below":      {args: []string{"clusters", "frobnicate"}, says: "has no command"},
		"unknown flag":       {args: []string{"run", "--frob"}, says: "unknown flag"},
		"no key":             {args: []string{"plugins", "list"}, says: "no API key"},
		"bad server":         {args: []string{"plugins", "list", "--server", "ftp://x"}, env: key, says: "no http or https URL"},
		"bad output":         {args: []string{"version", "-o", "xml"}, says: "want table, json or yaml"},
		"no image":           {args: []string{"run"}, env: key, says: "no image"},
		"bad env":            {args: []string{"run", "--image", "x", "--env", "=1"}, env: key, says: "want NAME=VALUE"},
		"bad limit":          {args: []string{"run", "--image", "x", "--limit", "cpu"}, env: key, says: "want NAME=VALUE"},
		"no version":         {args: []string{"logs"}, env: key, says: "wants a version's id"},
		"bad configuration":  {args: []string{"config", "show", "--log-level", "loud"}, says: "flag --log-level"},
		"no type to add":     {args: []string{"clusters", "add", "x"}, env: key, says: "give --type"},
		"bad field in -f":    {args: []string{"run", "-f", "-"}, env: key, says: "unknown field"},
		"doubled field in f": {args: []string{"run", "-f", "-"}, env: key, says: "already set"},
	}
	in := map[string]string{"bad field in -f": "name: x\ncolour: red\n", "doubled field in f": "name: x\nname: y\n"}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code, out, errs := execute(t, test.env, in[name], test.args...)
			if code != ExitUsage || out != "" || !strings.Contains(errs, test.says) {
				t.Errorf("exit code %d, output %q, error %q", code, out, errs)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	code, _, errs := execute(t, []string{"NAGELFLUH_API_KEY=k"}, "", "plugins", "list", "--server", "http://127.0.0.1:1")
	if code != ExitError || !strings.Contains(errs, "cannot be reached") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestSubmissionOfFileAndFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "job.yaml")
	text := "name: train\nspec:\n  image: a\n  command: [x]\n  env: [{name: N, value: 10}, {name: B, value: yes}]\n  limits: {nvidia.com/gpu: 2, memory: 16Gi}\n  requests: {cpu: 0.5}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var got client.Submission
	env := server(t, map[string]http.HandlerFunc{
		"POST /projects/other/processes": func(w http.ResponseWriter, r *http.Request) {
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
				t.Error(err)
			}
			answer(201, object{"id": "v"})(w, r)
		},
	})
	env = append(env, "HERE=there")
	code, _, errs := execute(t, env, "", "run", "-d", "-p", "other", "-f", file, "--env", "N=11", "--env", "HERE", "--gpus", "4", "--gpu-resource", "amd.com/gpu",
		"--retries", "2", "--max-runtime", "90m", "--label", "team=a", "--cluster", "c", "--", "sh", "-c", "echo $X --flag")
	if code != 0 {
		t.Fatal(errs)
	}
	seconds := int64(5400)
	want := client.Submission{Name: "train", Labels: map[string]string{"team": "a"}, Spec: client.Spec{
		Image: "a", Command: []string{"sh", "-c", "echo $X --flag"}, Cluster: "c", Retries: 2, MaxRuntimeSeconds: &seconds,
		Env:      []client.EnvVar{{Name: "N", Value: "11"}, {Name: "B", Value: "yes"}, {Name: "HERE", Value: "there"}},
		Requests: map[string]string{"cpu": "0.5"}, Limits: map[string]string{"nvidia.com/gpu": "2", "memory": "16Gi", "amd.com/gpu": "4"},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The flags of a cluster type come from its schema alone.
func TestClusterFlagsComeFromTheSchema(t *testing.T) {
	schema := `{"type":"object","required":["kubeconfig"],"properties":{
		"kubeconfig":{"type":["string","object"],"x-nagelfluh-textarea":true},"api_token":{"type":"string","x-nagelfluh-secret":true},
		"region":{"type":"string"},"port":{"type":"integer"},"tags":{"type":"array"},"type":{"type":"string"},"server":{"type":"string"}}}`
	var added, patched object
	decode := func(into *object, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			*into = nil
			if err := json.NewDecoder(r.Body).Decode(into); err != nil {
				t.Error(err)
			}
			answer(status, object{"name": "n", "active": true, "served_by": "p"})(w, r)
		}
	}
	env := server(t, map[string]http.HandlerFunc{
		"GET /cluster-types": answer(200, object{"items": []object{
			{"type": "other", "served": true, "config_schema": object{}}, {"type": "t", "served": true, "config_schema": json.RawMessage(schema)},
		}}),
		"POST /clusters": decode(&added, 201), "GET /clusters/n": answer(200, object{"type": "t"}), "PATCH /clusters/n": decode(&patched, 200),
	})
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config, token := write("config", "a: 1\nb: 2\n"), write("token", "geheim\n")
	code, _, errs := execute(t, env, "", "clusters", "add", "n", "--type", "t", "--kubeconfig", config, "--api-token", token, "--port", "6443",
		"--tags", "[a, b]", "--config-server", "https://a", "--label", "x=y", "--active=false", "-o", "json")
	if code != 0 {
		t.Fatal(errs)
	}
	want := object{"name": "n", "type": "t", "active": false, "labels": object{"x": "y"}, "provider_config": object{
		"kubeconfig": "a: 1\nb: 2\n", "api_token": "geheim", "port": float64(6443), "tags": []any{"a", "b"}, "server": "https://a",
	}}
	if d := cmp.Diff(want, added); d != "" {
		t.Error(d)
	}
	if code, _, errs := execute(t, env, "", "clusters", "edit", "n", "--region", "eu", "--max-runtime", "0"); code != 0 {
		t.Fatal(errs)
	}
	if d := cmp.Diff(object{"max_runtime_seconds": nil, "provider_config": object{"region": "eu"}}, patched); d != "" {
		t.Error(d)
	}
	if code, _, errs := execute(t, env, "", "clusters", "add", "n", "--type", "t", "--colour", "red"); code != ExitUsage || !strings.Contains(errs, "unknown flag: --colour") {
		t.Errorf("%d %s", code, errs)
	}
}

// report is what a test finds of a cluster at which one right is missing.
func report(ok bool, class string) object {
	return object{
		"ok": ok, "class": class, "message": "Jobs cannot run.", "remedy": "Ask its admin.", "server": "https://c.example", "version": "v1.37.2",
		"latency_ms": 3.2, "skew_seconds": -1.5, "took_ms": 40, "tested_at": "2026-01-02T03:04:05Z", "warnings": []string{"it ends soon"},
		"phases": []object{{"name": "connect", "ok": true, "took_ms": 2, "message": "10.0.0.1"}, {"name": "permissions", "ok": false, "took_ms": 1500}},
		"permissions": []object{
			{"verb": "create", "group": "batch", "resource": "jobs", "namespace": "team-a", "required": true, "allowed": "no", "lost": "no job runs"},
			{"verb": "get", "resource": "pods/log", "namespace": "team-a", "required": true, "allowed": "yes", "lost": "no logs"},
			{"verb": "list", "resource": "nodes", "required": false, "allowed": "no", "lost": "capacity is unknown"},
			{"verb": "get", "resource": "namespaces", "required": false, "allowed": "unknown", "lost": "identity"},
		},
		"kueue":    object{"installed": true, "queues": []object{{"name": "q", "cluster_queue": "cq", "active": true}}},
		"capacity": object{"observed_at": "2026-01-02T03:04:05Z", "nodes": 2, "resources": object{"nvidia.com/gpu": object{"node_max": 8, "node_free_max": 3, "total": 16, "free": 5}}},
	}
}

func TestConnectionTestForPeople(t *testing.T) {
	env := server(t, map[string]http.HandlerFunc{
		"GET /cluster-types": answer(200, object{"items": []object{}}), "GET /clusters/c": answer(200, object{"type": "t"}),
		"POST /clusters/c/test-connection": answer(200, report(false, "permissions")), "POST /clusters/test-connection": answer(200, report(true, "")),
	})
	code, out, errs := execute(t, append(env, "LC_ALL=de_CH.UTF-8"), "", "clusters", "test", "c")
	if code != ExitError || errs != "" {
		t.Errorf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{
		"✗  Jobs cannot run. (permissions)", "Ask its admin.", "!  it ends soon", "✓  connect      2ms   10.0.0.1", "✗  permissions  1.5s",
		"✗  create jobs.batch  namespace team-a   no job runs", "✓  get pods/log       namespace team-a",
		"!  list nodes         the whole cluster  capacity is unknown", "?  get namespaces     the whole cluster  could not be asked",
		"-1.5 s", "5/16 nvidia.com/gpu", "✓  q  cluster queue cq",
	} {
		if !strings.Contains(words(out), words(want)) { // how wide the columns are is not at stake
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	code, out, _ = execute(t, append(env, "LC_ALL=C"), "", "clusters", "test", "--type", "t")
	if code != 0 || strings.ContainsFunc(out, func(r rune) bool { return r > 126 }) || !strings.Contains(out, "[ok]") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, out, _ = execute(t, env, "", "clusters", "test", "c", "-o", "json"); code != ExitError || !json.Valid([]byte(out)) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if code, _, errs = execute(t, env, "", "clusters", "test"); code != ExitUsage {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func words(s string) string { return strings.Join(strings.Fields(s), " ") }

func TestAddAndEditShowTheReport(t *testing.T) {
	var query string
	refuse := func(status int, code, class string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			query = r.URL.RawQuery
			answer(status, object{"status": status, "code": code, "detail": "it is not the same", "details": object{"report": report(code != "connection_test_failed", class)}})(w, r)
		}
	}
	env := server(t, map[string]http.HandlerFunc{
		"GET /cluster-types": answer(200, object{"items": []object{}}), "GET /clusters/c": answer(200, object{"type": "t"}),
		"POST /clusters": refuse(422, "connection_test_failed", "permissions"), "PATCH /clusters/c": refuse(409, "identity_changed", ""),
	})
	code, out, errs := execute(t, env, "", "clusters", "add", "c", "--type", "t")
	if code != ExitError || out != "" || query != "" || !strings.Contains(errs, "create jobs.batch") || !strings.Contains(errs, "--no-test") {
		t.Errorf("exit code %d, query %q: %s", code, query, errs)
	}
	code, _, errs = execute(t, env, "", "clusters", "edit", "c", "--no-test", "--confirm-identity", "--type", "t")
	if code != ExitError || query != "connection_test=skip&confirm_identity=true" || !strings.Contains(errs, "it is not the same (identity_changed); --confirm-identity confirms") {
		t.Errorf("exit code %d, query %q: %s", code, query, errs)
	}
	env = server(t, map[string]http.HandlerFunc{
		"GET /cluster-types": answer(200, object{"items": []object{}}), "POST /clusters": refuse(422, "connection_test_failed", "policy"),
	})
	if code, _, errs := execute(t, env, "", "clusters", "add", "c", "--type", "t"); code != ExitError || strings.Contains(errs, "--no-test") {
		t.Errorf("what the policy refuses cannot be forced: %d %s", code, errs)
	}
}

func TestB54RemovalForPeople(t *testing.T) {
	var query string
	env := server(t, map[string]http.HandlerFunc{"DELETE /clusters/c": func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		answer(200, object{"cluster_id": "i", "cluster_name": "c", "reached": false, "attempts": []object{
			{"attempt_id": "a", "version_id": "v", "was": "running", "state": "unknown", "reason": "r", "namespace": "jobs", "job_name": "train-1", "may_still_run": true},
		}})(w, r)
	}})
	code, out, errs := execute(t, env, "", "clusters", "rm", "c", "--force")
	if code != 0 || query != "force=true" || !strings.Contains(out, "jobs/train-1") || !strings.Contains(out, "yes") {
		t.Errorf("exit code %d, query %q: %s%s", code, query, out, errs)
	}
}

// A field of a schema never takes the place of a flag that the commands have for themselves.
func TestTakenFlags(t *testing.T) {
	root := (&command{}).root()
	for _, name := range []string{"add", "edit", "test"} {
		cmd, _, err := root.Find([]string{"clusters", name})
		if err != nil {
			t.Fatal(err)
		}
		cmd.InitDefaultHelpFlag()
		check := func(f *pflag.Flag) {
			if !slices.Contains(taken, f.Name) {
				t.Errorf("clusters %s has the flag --%s, which is not among those taken", name, f.Name)
			}
		}
		cmd.Flags().VisitAll(check)
		cmd.InheritedFlags().VisitAll(check)
	}
}

func TestTables(t *testing.T) {
	env := server(t, map[string]http.HandlerFunc{
		"GET /plugins": answer(200, object{"items": []object{{"name": "provider-b", "kind": "provider", "state": "running", "restarts": 2,
			"shadowed_types": []string{"kubeconfig"}, "shadowed_by": object{"kubeconfig": "provider-a"}, "last_error": "two\nlines", "path": "/x"}}}),
	})
	_, out, _ := execute(t, env, "", "plugins", "list")
	for _, want := range []string{"NAME", "provider-b", "kubeconfig (shadowed by provider-a)", "two lines", "/x"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	for _, format := range []string{"json", "yaml"} {
		if _, out, _ := execute(t, env, "", "plugins", "list", "-o", format); !strings.Contains(out, "last_error") {
			t.Errorf("%s: %s", format, out)
		}
	}
}

// The docs name every command.
func TestCommandsAreDocumented(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	c := &command{}
	for _, cmd := range c.root().Commands() {
		names := []string{cmd.Name()}
		for _, below := range cmd.Commands() {
			names = append(names, below.Name())
		}
		for _, n := range names {
			if !strings.Contains(string(raw), n) {
				t.Errorf("docs/cli.md does not name %s %s", cmd.Name(), n)
			}
		}
	}
	for _, code := range []int{ExitUnknown, ExitDetached, ExitNotAccepted, ExitCancelled} {
		if !strings.Contains(string(raw), fmt.Sprintf("| %d |", code)) {
			t.Errorf("docs/cli.md does not explain exit code %d", code)
		}
	}
}

package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/nagelfluh/nagelfluh/core/internal/app"
	"github.com/nagelfluh/nagelfluh/core/internal/secret"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
	"github.com/nagelfluh/nagelfluh/rig/postgres"
)

const mark = "SECRET-MARK-"

// marks are what must appear nowhere: the marker, and it in base64 at each of the three offsets.
func marks() []string {
	all := []string{mark}
	for i := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", i) + mark))
		all = append(all, text[4:len(text)-4])
	}
	return all
}

// shown keeps everything that anybody gets to see, by where.
type shown struct {
	mu  sync.Mutex
	all map[string]*bytes.Buffer
}

func (s *shown) add(where string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[where] == nil {
		s.all[where] = &bytes.Buffer{}
	}
	s.all[where].Write(text)
	s.all[where].WriteByte('\n')
}

func (s *shown) Write(p []byte) (int, error) { s.add("log", p); return len(p), nil }

func (s *shown) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for where, text := range s.all {
		for _, m := range marks() {
			if at := strings.Index(text.String(), m); at >= 0 {
				t.Errorf("%s shows a secret: …%s…", where, text.String()[max(0, at-200):min(text.Len(), at+100)])
			}
		}
	}
}

// kubeconfig has a token, a client key and a password of a proxy that are all marked.
func kubeconfig(server string, ca []byte, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: %s}]
`, server, base64.StdEncoding.EncodeToString(ca), user)
}

// Secrets of provider configs appear nowhere: not in answers, errors, events, decisions, the log at its lowest level (what
// plugins write to standard error is in there), what is said at the start, nor in the database and its files.
func TestB11SecretsNowhere(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a plugin")
	}
	plugins := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(plugins, "provider-kubeconfig"), ".")
	build.Dir = "../../../plugins/provider-kubeconfig"
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	t.Run("sqlite", func(t *testing.T) {
		dir := t.TempDir()
		s := secretsNowhere(t, dir, plugins, "")
		files, err := filepath.Glob(filepath.Join(dir, "data", "*.db*"))
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			raw, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			s.add("file "+filepath.Base(f), raw)
		}
		s.check(t)
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := os.Getenv(postgres.EnvDSN)
		if dsn == "" {
			server, err := postgres.Start(t.Context())
			if errors.Is(err, postgres.ErrNotInstalled) && !postgres.Required() {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer server.Stop()
			dsn = server.DSN
		}
		secretsNowhere(t, t.TempDir(), plugins, dsn).check(t)
	})
}

func secretsNowhere(t *testing.T, dir, plugins, database string) *shown {
	s := &shown{all: map[string]*bytes.Buffer{}}
	flags := map[string][]string{"plugin_dirs": {plugins}, "log.level": {"trace"}, "health.interval": {"1s"}}
	if database != "" {
		flags["database"] = []string{database}
	}
	cfg := load(t, dir, flags)
	r := startWith(t, cfg, hclog.New(&hclog.LoggerOptions{Name: "nagelfluh", Level: hclog.Trace, Output: s}))

	// A cluster that rejects every credential, and repeats it as a careless server would.
	hostile := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 401,
			"reason": "Unauthorized", "message": "not authorised: " + q.Header.Get("Authorization")})
	}))
	hostile.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	defer hostile.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hostile.Certificate().Raw})
	key := base64.StdEncoding.EncodeToString([]byte("-----BEGIN PRIVATE KEY-----\n" + mark + "key\n-----END PRIVATE KEY-----\n"))
	good := kubeconfig(hostile.URL, ca, "{token: "+mark+"token}")
	configs := map[string]string{
		"good":                 good,
		"nobody listens":       kubeconfig("https://127.0.0.1:1", ca, "{token: "+mark+"token}"),
		"wrong authority":      strings.Replace(good, "certificate-authority-data: ", "tls-server-name: other.example, certificate-authority-data: ", 1),
		"token with newline":   kubeconfig(hostile.URL, ca, `{token: "`+mark+`token\n"}`),
		"token with a break":   kubeconfig(hostile.URL, ca, `{token: "`+mark+`to\nken"}`),
		"password":             kubeconfig(hostile.URL, ca, "{username: u, password: "+mark+"password}"),
		"broken key":           kubeconfig(hostile.URL, ca, "{client-certificate-data: "+base64.StdEncoding.EncodeToString(ca)+", client-key-data: "+key+"}"),
		"broken base64":        strings.Replace(good, "certificate-authority-data: ", "certificate-authority-data: '%%%"+mark+"'#", 1),
		"exec":                 kubeconfig(hostile.URL, ca, "{exec: {command: "+mark+"command, apiVersion: client.authentication.k8s.io/v1}}"),
		"proxy with password":  strings.Replace(good, "certificate-authority-data: ", "proxy-url: 'http://u:"+mark+"proxy@p.example:1', certificate-authority-data: ", 1),
		"user in the URL":      kubeconfig("https://u:"+mark+"url@127.0.0.1:1", ca, "{token: "+mark+"token}"),
		"not YAML":             "a: [" + mark,
		"key and value in one": strings.Replace(good, "token: ", "token:", 1),
	}
	ask := func(method, path string, body any) (int, []byte) {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		q, err := http.NewRequestWithContext(t.Context(), method, r.url+path, bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Authorization", "Bearer "+r.key)
		q.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		s.add(method+" "+path, text)
		return resp.StatusCode, text
	}
	const clusters = "/api/v1/clusters"
	create := func(name, text, query string) (int, []byte) {
		return ask("POST", clusters+query, map[string]any{"name": name, "type": "kubeconfig", "active": true,
			"provider_config": map[string]any{"kubeconfig": text}})
	}
	stored := 0
	for name, text := range configs {
		code, answer := create(name, text, "")
		if code < 400 {
			t.Errorf("%s: %d, though its connection fails: %s", name, code, answer)
		}
		ask("POST", clusters+"/test-connection", map[string]any{"type": "kubeconfig", "provider_config": map[string]any{"kubeconfig": text}})
		if code, _ := create(name, text, "?connection_test=skip"); code == 201 {
			stored++
		}
	}
	if stored < 4 {
		t.Errorf("only %d clusters were stored", stored)
	}
	create("good", good, "?connection_test=skip")                                   // the name is taken
	create("misfit", mark+`"`, "")                                                  // no kubeconfig at all
	ask("POST", clusters, []any{mark})                                              // no cluster at all
	ask("POST", clusters, map[string]any{"name": "n", "type": "t", "config": mark}) // an unknown key
	ask("PATCH", clusters+"/good", map[string]any{"provider_config": map[string]any{"kubeconfig": configs["nobody listens"]}})
	ask("PATCH", clusters+"/good?connection_test=skip", map[string]any{"provider_config": map[string]any{"kubeconfig": configs["token with newline"]}})
	ask("POST", clusters+"/good/test-connection", map[string]any{})
	_, answer := ask("POST", "/api/v1/projects/default/processes", map[string]any{"name": "x", "spec": map[string]any{"image": "busybox", "cluster": "good"}})
	var version struct{ ID string }
	if err := json.Unmarshal(answer, &version); err != nil || version.ID == "" {
		t.Fatalf("%s %v", answer, err)
	}

	// Credentials of storage: kept, refused, tested against a server that repeats them, and on their way to a Job.
	const backends = "/api/v1/storage-backends"
	keys := map[string]any{"access_key_id": mark + "id", "secret_access_key": mark + "secret", "session_token": mark + "session"}
	careless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%v</Message></Error>", mark+"id", q.Header)
	}))
	defer careless.Close()
	lake := map[string]any{"name": "lake", "endpoint": careless.URL, "bucket": "lake", "path_style": true, "credentials": keys}
	if code, text := ask("POST", backends, lake); code != 422 {
		t.Errorf("storage that cannot be reached: %d %s", code, text)
	}
	if code, text := ask("POST", backends+"?connection_test=skip", lake); code != 201 {
		t.Errorf("storage: %d %s", code, text)
	}
	ask("POST", backends+"/lake/test", map[string]any{})
	ask("POST", backends+"/test", map[string]any{"endpoint": "https://u:" + mark + "@x", "bucket": "b", "credentials": keys})
	ask("POST", backends+"/test", map[string]any{"endpoint": hostile.URL, "bucket": "lake", "credentials": keys})
	ask("PATCH", backends+"/lake", map[string]any{"credentials": map[string]any{"access_key_id": mark + " x", "secret_access_key": mark}})
	ask("PATCH", backends+"/lake", map[string]any{"credentials": mark})
	ask("POST", backends, map[string]any{"name": "x", "secret": mark})
	if code, text := ask("PATCH", "/api/v1/projects/default", map[string]any{"storage": "lake"}); code != 200 {
		t.Errorf("storage of a project: %d %s", code, text)
	}
	ask("DELETE", backends+"/lake", nil)
	ask("POST", "/api/v1/projects/default/processes", map[string]any{"name": "y", "spec": map[string]any{"image": "busybox", "cluster": "good"}})

	// Until the monitor has tried the cluster, so that its errors are there to be seen.
	deadline := time.Now().Add(time.Minute)
	for {
		_, text := ask("GET", clusters+"/good", nil)
		if strings.Contains(string(text), `"reason"`) && !strings.Contains(string(text), `"health":"unknown"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cluster is not looked at: %s", text)
		}
		time.Sleep(50 * time.Millisecond) // polling with a deadline: there is nothing to wait on from outside
	}
	for _, path := range []string{backends, backends + "/lake", "/api/v1/projects", clusters, clusters + "/good", clusters + "/good/history", "/api/v1/projects/default/clusters", "/api/v1/cluster-types",
		"/api/v1/plugins", "/api/v1/versions/" + version.ID, "/api/v1/versions/" + version.ID + "/explain", "/metrics", "/readyz"} {
		ask("GET", path, nil)
	}
	ask("POST", "/api/v1/projects/default/processes/dry-run", map[string]any{"name": "x", "spec": map[string]any{"image": "busybox"}})
	ask("DELETE", clusters+"/token with newline", nil)
	s.add("events", events(t, r))
	s.add("said at the start", []byte(r.said.all()))

	// The database while the server runs, with its -wal file.
	db, err := store.Open(t.Context(), store.Options{URL: cfg.Database})
	if err != nil {
		t.Fatal(err)
	}
	texts, err := db.Secrets(t.Context())
	if err != nil || len(texts) < 4 {
		t.Errorf("%d stored configs, %v", len(texts), err)
	}
	for _, text := range texts {
		s.add("row", []byte(text.Stored))
	}
	if _, err := secret.NewBox(cfg.KeysetFile).Rotate(t.Context(), db, true); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if database == "" {
		if raw, err := os.ReadFile(filepath.Join(cfg.DataDir, "nagelfluh.db-wal")); err == nil {
			s.add("-wal of the running server", raw)
		}
	} else if dump, err := exec.LookPath("pg_dump"); err == nil {
		out, err := exec.CommandContext(t.Context(), dump, "--dbname", database).Output()
		if err != nil {
			t.Error("pg_dump:", err)
		}
		s.add("dump", out)
	}
	// It goes on with the new key.
	if code, text := ask("POST", clusters+"/good/test-connection", map[string]any{}); code != 200 || strings.Contains(string(text), "decrypt") {
		t.Errorf("after the rotation: %d %s", code, text)
	}
	if code, text := create("later", good, "?connection_test=skip"); code != 201 {
		t.Errorf("after the rotation: %d %s", code, text)
	}
	r.end()

	// Without the keyset there is no start, and the refusal tells nothing either.
	if err := os.Rename(cfg.KeysetFile, cfg.KeysetFile+".away"); err != nil {
		t.Fatal(err)
	}
	err = app.Run(t.Context(), app.Options{Config: cfg, Logger: hclog.NewNullLogger(), Version: "test"})
	if !errors.Is(err, secret.ErrMissing) {
		t.Errorf("without the keyset: %v", err)
	} else {
		s.add("refusal", []byte(err.Error()))
	}
	return s
}

// events reads what the stream has of the past.
func events(t *testing.T, r *running) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/api/v1/events?after=0", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+r.key)
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // ends with the time
	if !bytes.Contains(text, []byte("cluster")) {
		t.Errorf("no events: %s", text)
	}
	return text
}

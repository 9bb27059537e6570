package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/app"
	"github.com/nagelfluh/nagelfluh/core/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running is a server that was started.
type running struct {
	t    *testing.T
	url  string
	key  string
	said *said
	stop context.CancelFunc
	done chan error
}

// said keeps the lines for the one who started the server and tells when it listens.
type said struct {
	mu     sync.Mutex
	lines  []string
	listen chan string
}

func (s *said) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.lines = append(s.lines, line)
	s.mu.Unlock()
	if url, ok := strings.CutPrefix(line, "listening on "); ok {
		s.listen <- url
	}
}

func (s *said) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func load(t *testing.T, dir string, flags map[string][]string) *config.Config {
	t.Helper()
	plugins := filepath.Join(dir, "plugins")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{"listen": {"127.0.0.1:0"}, "data_dir": {filepath.Join(dir, "data")}, "plugin_dirs": {plugins}}
	for k, v := range flags {
		all[k] = v
	}
	cfg, err := config.Load(config.Input{Flags: all})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func start(t *testing.T, dir string) *running {
	t.Helper()
	return startWith(t, load(t, dir, nil), hclog.NewNullLogger())
}

func startWith(t *testing.T, cfg *config.Config, logger hclog.Logger) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r := &running{t: t, said: &said{listen: make(chan string, 1)}, stop: stop, done: make(chan error, 1)}
	go func() {
		r.done <- app.Run(ctx, app.Options{Config: cfg, Logger: logger, Version: "test", Say: r.said.say})
	}()
	select {
	case r.url = <-r.said.listen:
	case err := <-r.done:
		stop()
		t.Fatal("the server ended: ", err)
	}
	raw, err := os.ReadFile(filepath.Join(cfg.DataDir, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	r.key = strings.TrimSpace(string(raw))
	t.Cleanup(r.end)
	return r
}

// end stops the server and wants an orderly end; a second call does nothing.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	if r.done == nil {
		return
	}
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Error("the server ended with", err)
		}
	case <-time.After(30 * time.Second):
		r.t.Error("the server does not end")
	}
	r.done = nil
	http.DefaultClient.CloseIdleConnections()
}

func (r *running) do(method, path string, body any) (int, map[string]any) {
	r.t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		r.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, bytes.NewReader(raw))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return resp.StatusCode, out
}

// Without any plugin and any cluster the server starts, takes work, says why it waits, and has it after a restart.
func TestStartsWithNothing(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir)
	if !strings.Contains(r.said.all(), r.key) {
		t.Error("the first start does not show the key")
	}
	info, err := os.Stat(filepath.Join(dir, "data", "admin.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key's file: %v %v", info.Mode(), err)
	}
	status, v := r.do("POST", "/api/v1/projects/default/processes", map[string]any{"name": "x", "spec": map[string]any{"image": "busybox"}})
	if status != 201 {
		t.Fatalf("%d %v", status, v)
	}
	path := "/api/v1/versions/" + v["id"].(string)
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, got := r.do("GET", path, nil)
		attempt := got["attempt"].(map[string]any)
		reason, _ := attempt["reason"].(string)
		if strings.Contains(reason, "no provider plugin serves its type") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the attempt does not say why it waits: %v", attempt)
		}
		time.Sleep(10 * time.Millisecond) // polling with a deadline: there is nothing to wait on from outside
	}
	r.end()

	again := start(t, dir)
	if strings.Contains(again.said.all(), "first start") || again.key != r.key {
		t.Error("the second start made another admin")
	}
	if status, got := again.do("GET", path, nil); status != 200 || got["state"] != "placing" {
		t.Errorf("%d %v", status, got)
	}
}

// A stream does not hold up the end.
func TestStreamEndsWithTheServer(t *testing.T) {
	r := start(t, t.TempDir())
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	began := time.Now()
	r.end()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the end took %s", took)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error("the stream was cut off instead of ended:", err)
	}
}

func TestStartErrors(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	dir := t.TempDir()
	start(t, dir)
	tests := map[string]struct {
		dir   string
		flags map[string][]string
		says  string
	}{
		"address in use":      {t.TempDir(), map[string][]string{"listen": {busy.Addr().String()}}, "address already in use"},
		"a second server":     {dir, nil, "another server uses this database"},
		"no such archive":     {t.TempDir(), map[string][]string{"logs.archive": {"gopher://x"}}, "archive of logs"},
		"data dir is a file":  {t.TempDir(), map[string][]string{"data_dir": {os.Args[0]}}, "data directory"},
		"unreachable network": {t.TempDir(), map[string][]string{"database": {"postgres://u:geheim@127.0.0.1:1/x"}}, "open the database"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := app.Run(t.Context(), app.Options{Config: load(t, test.dir, test.flags), Logger: hclog.NewNullLogger(), Version: "test"})
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "geheim") {
				t.Error("the error shows a password")
			}
		})
	}
}

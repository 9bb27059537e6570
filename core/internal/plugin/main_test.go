package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/sdk/handshake"
)

// fakeBinary is testdata/fake, built once.
var fakeBinary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ngf-fake-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		fakeBinary = filepath.Join(dir, "fake")
		if out, err := exec.Command("go", "build", "-o", fakeBinary, "./testdata/fake").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the fake plugin: %v\n%s", err, out)
			return 1
		}
		code := m.Run()
		if code == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return code
	}())
}

// Mirrors of the types in testdata/fake.
type (
	behaviour struct {
		Stdout     string            `json:",omitempty"`
		StdoutFill int               `json:",omitempty"`
		Stderr     string            `json:",omitempty"`
		Panic      string            `json:",omitempty"`
		Exit       *int              `json:",omitempty"`
		Hang       bool              `json:",omitempty"`
		Release    string            `json:",omitempty"`
		Cookie     string            `json:",omitempty"`
		Protocol   int               `json:",omitempty"`
		Spam       bool              `json:",omitempty"`
		Child      bool              `json:",omitempty"`
		Stubborn   bool              `json:",omitempty"`
		Started    string            `json:",omitempty"`
		Unhealthy  string            `json:",omitempty"`
		Methods    map[string]method `json:",omitempty"`
	}
	method struct {
		Answer  json.RawMessage `json:",omitempty"`
		Code    int             `json:",omitempty"`
		Message string          `json:",omitempty"`
		ExitAt  int             `json:",omitempty"`
		Always  bool            `json:",omitempty"`
		Panic   string          `json:",omitempty"`
		Hang    bool            `json:",omitempty"`
		Told    string          `json:",omitempty"`
		Env     bool            `json:",omitempty"`
		Fill    int             `json:",omitempty"`
	}
)

func answer(text string) method { return method{Answer: json.RawMessage(text)} }

const (
	saysSelected  = `{"selected":{"clusterId":"a","reason":"because"}}`
	saysAbstained = `{"abstained":{"reason":"no opinion"}}`
)

// goodSelector abstains; the given methods are put over its own.
func goodSelector(over map[string]method) behaviour {
	b := behaviour{Methods: map[string]method{
		"Describe": answer(`{"name":"fake","version":"1.2.3","title":"A fake","kind":"KIND_SELECTOR",
			"capabilities":["CAPABILITY_SELECT_CLUSTER"]}`),
		"Configure":     {},
		"SelectCluster": answer(saysAbstained),
	}}
	for name, m := range over {
		b.Methods[name] = m
	}
	return b
}

// typesAnswer offers types without settings.
func typesAnswer(names ...string) method {
	var types []string
	for _, name := range names {
		types = append(types, fmt.Sprintf(`{"name":%q,"title":"Type %s","configSchema":%q,"registrationStyle":"REGISTRATION_STYLE_FORM"}`,
			name, name, base64JSON(`{"type":"object","properties":{"token":{"type":"string","x-nagelfluh-secret":true},"zone":{"type":"string","default":"eu","enum":["eu","us"]}},"additionalProperties":false}`)))
	}
	return answer(`{"types":[` + strings.Join(types, ",") + `]}`)
}

func base64JSON(text string) string {
	raw, err := json.Marshal([]byte(text))
	if err != nil {
		panic(err)
	}
	return strings.Trim(string(raw), `"`)
}

// goodProvider serves the type "simple" with a kubeconfig.
func goodProvider(over map[string]method) behaviour {
	b := behaviour{Methods: map[string]method{
		"Describe":         answer(`{"name":"fake","version":"1.2.3","kind":"KIND_PROVIDER"}`),
		"Configure":        {},
		"ListClusterTypes": typesAnswer("simple"),
		"Connect":          answer(`{"kubeconfig":"` + base64JSON("kind: Config") + `"}`),
	}}
	for name, m := range over {
		b.Methods[name] = m
	}
	return b
}

// rig is a plugin directory and what a test sees of its host.
type rig struct {
	t    testing.TB
	base string // short, for sockets
	dir  string // plugin directory
	log  *logBuffer
	pace pace
}

// newRig makes an empty plugin directory. After the test no process that had to do with it may be left.
func newRig(t testing.TB) *rig {
	t.Helper()
	base, err := os.MkdirTemp("", "ngf-t-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, base: base, dir: filepath.Join(base, "plugins"), log: &logBuffer{},
		pace: pace{backoff: 10 * time.Millisecond, maxBackoff: 50 * time.Millisecond, look: 5 * time.Millisecond, health: time.Hour, healthLimit: 5 * time.Second}}
	for _, dir := range []string{r.dir, filepath.Join(r.dir, "behave")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if left := processesOf(base); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log.String())
		}
		os.RemoveAll(base)
	})
	return r
}

// install puts the fake plugin there under a name.
func (r *rig) install(name string, b behaviour) string {
	r.t.Helper()
	r.behave(name, b)
	path := filepath.Join(r.dir, name)
	if err := os.Link(fakeBinary, path); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// behave says what a plugin does from its next start on.
func (r *rig) behave(name string, b behaviour) {
	r.t.Helper()
	raw, err := json.Marshal(b)
	if err != nil {
		r.t.Fatal(err)
	}
	r.write(filepath.Join(r.dir, "behave", name), string(raw), 0o644)
}

// write puts a file there at once.
func (r *rig) write(path, text string, mode os.FileMode) string {
	r.t.Helper()
	temp := filepath.Join(r.base, "temp")
	if err := os.WriteFile(temp, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Chmod(temp, mode); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// script installs a shell script.
func (r *rig) script(name, text string) string {
	r.t.Helper()
	return r.write(filepath.Join(r.dir, name), text, 0o755)
}

// options has the rig's directories.
func (r *rig) options() Options {
	return Options{Dirs: []string{r.dir}, SocketDir: r.base, StartWait: 20 * time.Second, StartLimit: 20 * time.Second, FailureBudget: 5,
		Logger: hclog.New(&hclog.LoggerOptions{Name: "plugin", Level: hclog.Debug, Output: r.log, JSONFormat: true})}
}

// host makes a host, not started, that is closed at the end.
func (r *rig) host(o Options) *Host {
	r.t.Helper()
	h, err := NewHost(o)
	if err != nil {
		r.t.Fatal(err)
	}
	h.pace = r.pace
	r.t.Cleanup(h.Close)
	return h
}

// start makes a host and starts it.
func (r *rig) start(o Options) *Host {
	r.t.Helper()
	h := r.host(o)
	if err := h.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return h
}

// statusOf returns one plugin of the list.
func statusOf(t *testing.T, h *Host, name string) Status {
	t.Helper()
	for _, s := range h.List() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no plugin %s in the list", name)
	return Status{}
}

// until waits for the plugin's status to be right, looking at each change of its state.
func until(t *testing.T, h *Host, name, what string, right func(Status) bool) Status {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		_, _, changed := h.byName[name].current()
		if s := statusOf(t, h, name); right(s) {
			return s
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("%s: not %s in time: %+v", name, what, statusOf(t, h, name))
		}
	}
}

func untilState(t *testing.T, h *Host, name string, want State) Status {
	t.Helper()
	return until(t, h, name, string(want), func(s Status) bool { return s.State == want })
}

// eventually polls for what no channel tells.
func eventually(t *testing.T, what string, right func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !right() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		}
	}
}

func selectorOf(t *testing.T, h *Host, name string) placement.Selector {
	t.Helper()
	for _, s := range h.Selectors() {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no selector %s in the chain", name)
	return nil
}

// ask asks a selector about one candidate, "a".
func ask(t *testing.T, h *Host, name string) (placement.Answer, error) {
	t.Helper()
	return selectorOf(t, h, name).SelectCluster(t.Context(), snapshot(), placement.Request{})
}

func snapshot() *placement.Snapshot {
	return &placement.Snapshot{Candidates: []placement.Candidate{{ID: "a", Name: "A", Type: "simple"}}}
}

func wants(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
}

// logBuffer is a log that a test can read.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// processesOf lists the processes that are children of this one, or that have to do with a directory: by their
// arguments or, as children of plugins, by their environment.
func processesOf(dir string) []string {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if pid == os.Getpid() {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(d, "stat"))
		if err != nil {
			continue // ended meanwhile
		}
		rest := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		args, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(d, "environ"))
		if rest[1] == strconv.Itoa(os.Getpid()) || bytes.Contains(args, []byte(dir)) || bytes.Contains(env, []byte(dir)) {
			found = append(found, fmt.Sprintf("%d (%s, %q)", pid, rest[0], args))
		}
	}
	return found
}

// setsOf are the plugin sets of a host that speaks these protocol versions.
func setsOf(versions ...int) func() map[int]goplugin.PluginSet {
	return func() map[int]goplugin.PluginSet {
		sets := map[int]goplugin.PluginSet{}
		for _, v := range versions {
			sets[v] = handshake.ClientSets()[handshake.ProtocolVersion]
		}
		return sets
	}
}

func ptr[T any](v T) *T { return &v }

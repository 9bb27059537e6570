package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	domain "github.com/nagelfluh/nagelfluh/core/internal/process"
)

// A config is checked against the type's schema, whose defaults are filled in, and then by the provider.
func TestValidateConfig(t *testing.T) {
	validating := func(m method) behaviour {
		return goodProvider(map[string]method{"ValidateConfig": m,
			"Describe": answer(`{"name":"n","version":"1","kind":"KIND_PROVIDER","capabilities":["CAPABILITY_VALIDATE_CONFIG"]}`)})
	}
	for name, c := range map[string]struct {
		b      behaviour
		config string
		want   string
		fields []FieldError // the config is at fault
		says   string       // the plugin is at fault
	}{
		"schema alone":        {goodProvider(nil), `{"token":"t"}`, `{"token":"t","zone":"eu"}`, nil, ""},
		"empty":               {goodProvider(nil), ``, `{"zone":"eu"}`, nil, ""},
		"unknown field":       {goodProvider(nil), `{"nope":1}`, "", []FieldError{{"/nope", "There is no such field; check its spelling."}}, ""},
		"no object":           {goodProvider(nil), `[]`, "", []FieldError{{"", "The config is not a JSON object."}}, ""},
		"enum":                {goodProvider(nil), `{"zone":"moon"}`, "", []FieldError{{"/zone", `Must be one of "eu", "us".`}}, ""},
		"normalised":          {validating(answer(`{"normalizedConfig":"` + base64JSON(`{"token":"n"}`) + `"}`)), `{"token":"t"}`, `{"token":"n"}`, nil, ""},
		"field errors":        {validating(answer(`{"fieldErrors":[{"path":"/token","message":"s3cr3t is too short"}]}`)), `{"token":"s3cr3t"}`, "", []FieldError{{"/token", "[redacted] is too short"}}, ""},
		"invalid argument":    {validating(method{Code: int(codes.InvalidArgument), Message: "token: expired"}), `{}`, "", []FieldError{{"", "token: expired"}}, ""},
		"nothing to store":    {validating(answer(`{}`)), `{}`, "", nil, "the normalised config does not pass the schema"},
		"internal error":      {validating(method{Code: int(codes.Internal), Message: "boom"}), `{}`, "", nil, "ValidateConfig: Internal: boom"},
		"a dependency is out": {validating(method{Code: int(codes.Unavailable), Message: "no vault"}), `{}`, "", nil, "ValidateConfig: Unavailable: no vault"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.install("provider-x", c.b)
			h := r.start(r.options())
			got, _, err := h.ValidateConfig(t.Context(), "simple", json.RawMessage(c.config))
			switch {
			case c.fields != nil:
				var bad *InvalidConfig
				if !errors.Is(err, ErrInvalidConfig) || !errors.As(err, &bad) || !slices.Equal(bad.Fields, c.fields) {
					t.Errorf("%v", err)
				}
				if strings.Count(err.Error(), "provider(provider-x)") != 1 {
					t.Errorf("%v", err)
				}
			case c.says != "":
				if err == nil || errors.Is(err, ErrInvalidConfig) {
					t.Fatalf("%v", err)
				}
				wants(t, err.Error(), "provider(provider-x): ", c.says)
			case err != nil || string(got) != c.want:
				t.Errorf("%s %v", got, err)
			}
		})
	}
	t.Run("warnings", func(t *testing.T) {
		r := newRig(t)
		r.install("provider-x", validating(answer(`{"normalizedConfig":"`+base64JSON(`{}`)+`","warnings":[{"path":"/token","message":"expires soon"}]}`)))
		_, warnings, err := r.start(r.options()).ValidateConfig(t.Context(), "simple", nil)
		if err != nil || !slices.Equal(warnings, []FieldError{{"/token", "expires soon"}}) {
			t.Errorf("%v %v", warnings, err)
		}
	})
	t.Run("type that nobody serves", func(t *testing.T) {
		r := newRig(t)
		r.install("provider-x", goodProvider(nil))
		_, _, err := r.start(r.options()).ValidateConfig(t.Context(), "nope", nil)
		if !errors.Is(err, ErrNotServed) {
			t.Fatalf("%v", err)
		}
		wants(t, err.Error(), `no provider plugin offers type "nope"`)
	})
}

// The operator's configuration arrives at each start with its defaults, and its secrets stay out of the log.
func TestConfigure(t *testing.T) {
	r := newRig(t)
	schema := `{"type":"object","properties":{"key":{"type":"string","x-nagelfluh-secret":true},"zone":{"type":"string","default":"europe"},"name":{"type":"string"}}}`
	r.install("selector-x", goodSelector(map[string]method{
		"Describe":  answer(`{"name":"n","version":"1","kind":"KIND_SELECTOR","capabilities":["CAPABILITY_SELECT_CLUSTER"],"configSchema":"` + base64JSON(schema) + `"}`),
		"Configure": {Env: true}}))
	o := r.options()
	o.Plugins = map[string]Config{"selector-x": {Config: []byte(`{"key":"hunter22","name":"visible"}`)}}
	h := r.start(o)
	before := statusOf(t, h, "selector-x").PID
	if err := h.Restart("selector-x"); err != nil {
		t.Fatal(err)
	}
	until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before })
	h.Close()
	log := r.log.String()
	if n := strings.Count(log, `configured with {\"key\":\"[redacted]\",\"name\":\"visible\",\"zone\":\"europe\"}`); n != 2 {
		t.Errorf("configured %d times as it should be:\n%s", n, log)
	}
	if strings.Contains(log, "hunter22") {
		t.Error("the secret is in the log")
	}
}

// What plugins log comes under their names with its level and fields, without the secrets of clusters.
func TestLogs(t *testing.T) {
	r := newRig(t)
	r.install("provider-x", goodProvider(map[string]method{"Connect": {Env: true, Code: int(codes.Internal), Message: "cannot log in with abcdef-token"}}))
	h := r.start(r.options())
	_, err := h.Connect(t.Context(), cluster.Cluster{Type: "simple", ProviderConfig: []byte(`{"token":"abcdef-token"}`)})
	if err == nil {
		t.Fatal("no error")
	}
	wants(t, err.Error(), "provider(provider-x): Connect: Internal: cannot log in with [redacted]")
	h.Close()
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "leak") {
			wants(t, line, `"@level":"error"`, `"@module":"plugin.provider-x"`, `{\"token\":\"[redacted]\"}`)
			return
		}
	}
	t.Error("the line is not in the log")
}

// 16 MB pass in both directions; more is an error and not a crash.
func TestLargeMessages(t *testing.T) {
	r := newRig(t)
	r.install("selector-big", goodSelector(map[string]method{"SelectCluster": {Fill: 15 << 20}}))
	r.install("selector-toobig", goodSelector(map[string]method{"SelectCluster": {Fill: 17 << 20}}))
	h := r.start(r.options())
	big := placement.Request{Version: domain.Version{Spec: domain.Spec{Labels: map[string]string{"l": strings.Repeat("x", 15<<20)}}}}
	a, err := selectorOf(t, h, "selector-big").SelectCluster(t.Context(), snapshot(), big)
	if err != nil || len(a.Reason) > maxReason+3 {
		t.Errorf("%d %v", len(a.Reason), err)
	}
	if _, err := ask(t, h, "selector-toobig"); err == nil {
		t.Error("17 MB passed")
	}
	if s := statusOf(t, h, "selector-toobig"); s.State != Running || s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}

// A request arrives whole; a snapshot is converted once.
func TestRequestConversion(t *testing.T) {
	observed := time.Now().UTC()
	s := &placement.Snapshot{Candidates: []placement.Candidate{{ID: "a", Health: cluster.Degraded, Active: 3, Default: true, Capacity: &cluster.Capacity{
		ObservedAt: observed, Nodes: 2, Resources: map[string]cluster.ResourceCapacity{"cpu": {Free: -1}, "amd.com/gpu": {NodeMax: 8}}}}, {ID: "b"}}}
	first, second := snapshotV1(s).candidates, snapshotV1(s).candidates
	if &first[0] != &second[0] {
		t.Error("converted twice")
	}
	a, b := first[0], first[1]
	if a.GetState() != "degraded" || a.GetActiveAttempts() != 3 || !a.GetIsDefault() || a.GetCapacity().GetNodes() != 2 ||
		!a.GetCapacity().GetObservedAt().AsTime().Equal(observed) || a.GetCapacity().GetResources()[0].GetName() != "amd.com/gpu" ||
		a.GetCapacity().GetResources()[1].GetFree() != -1 || b.GetCapacity() != nil {
		t.Errorf("%v %v", a, b)
	}
	groups := []string{"z", "a"}
	if u := userV1(placement.User{Groups: groups}); !slices.Equal(u.GetGroups(), []string{"a", "z"}) || groups[0] != "z" {
		t.Errorf("%v", u.GetGroups())
	}
}

// A caller that gives up is told so at once, and every call is observed.
func TestCallerGivesUpAndObserve(t *testing.T) {
	r := newRig(t)
	told := filepath.Join(r.base, "told")
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": {Hang: true, Told: told}}))
	o := r.options()
	var mu sync.Mutex
	var seen []string
	o.Observe = func(plugin, method string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(plugin, " ", method, " ", took > 0, " ", err != nil))
	}
	h := r.start(o)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for {
			if raw, _ := os.ReadFile(told); len(raw) > 0 {
				cancel()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := selectorOf(t, h, "selector-x").SelectCluster(ctx, snapshot(), placement.Request{})
	if !errors.Is(err, ctx.Err()) || ctx.Err() == nil {
		t.Errorf("%v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(seen, []string{"selector-x SelectCluster true true"}) {
		t.Errorf("%v", seen)
	}
}

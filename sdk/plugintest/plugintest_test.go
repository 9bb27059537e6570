package plugintest_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nagelfluh/nagelfluh/sdk/field"
	"github.com/nagelfluh/nagelfluh/sdk/plugintest"
	"github.com/nagelfluh/nagelfluh/sdk/provider"
	"github.com/nagelfluh/nagelfluh/sdk/schema"
	"github.com/nagelfluh/nagelfluh/sdk/selector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo keeps what it was asked.
type echo struct {
	cluster selector.Request
	list    selector.ListRequest
	storage selector.StorageRequest
	answer  func() (selector.Answer, error)
}

func (e *echo) SelectCluster(_ context.Context, r selector.Request) (selector.Answer, error) {
	e.cluster = r
	return e.answer()
}

func (e *echo) SelectClusters(_ context.Context, r selector.ListRequest) (selector.Choice, error) {
	e.list = r
	if len(r.Candidates) == 0 {
		return selector.ChooseAny("none"), nil
	}
	return selector.Choose(r.Candidates[0].ID), nil
}

func (e *echo) SelectStorage(_ context.Context, r selector.StorageRequest) (selector.StorageAnswer, error) {
	e.storage = r
	if len(r.Backends) == 0 {
		return selector.AbstainBackend("none"), nil
	}
	return selector.SelectBackend(r.Backends[0].ID, "first"), nil
}

var (
	someone   = selector.User{ID: "u", Name: "n", Groups: []string{"a"}, Admin: true}
	somewhere = selector.Project{ID: "p", Name: "n", Labels: map[string]string{"a": "b"}, HomeClusterID: "h"}
	labels    = map[string]string{"a": "b"}
	clusters  = []selector.Cluster{
		{ID: "c1", Name: "n", Type: "t", Labels: labels, SortOrder: -1, KubernetesVersion: "v1", State: "ready", ActiveAttempts: 3, Default: true},
		{ID: "c2", Capacity: &selector.Capacity{
			ObservedAt: time.Unix(1, 2).UTC(), Nodes: 4,
			Resources: map[string]selector.Resource{"cpu": {NodeMax: 1, NodeFreeMax: -2, Total: 3, Free: -4}},
		}},
	}
)

// TestNothingIsLost sees that every field of a request arrives.
func TestNothingIsLost(t *testing.T) {
	e := &echo{answer: func() (selector.Answer, error) { return selector.Abstain("a"), nil }}
	p := plugintest.Selector(t, e, "")
	placement := selector.Request{
		User: someone, Project: somewhere, Process: selector.Process{ID: "i", Name: "n", Type: "t", Labels: labels},
		Version: selector.Version{
			ID: "v", Number: 7, Image: "i", Requests: labels, Limits: labels, NodeSelector: labels, Labels: labels,
			AttemptNumber: 2, PreviousClusterIDs: []string{"x"},
		},
		Candidates: clusters, DryRun: true, IneligibleKnown: true,
		Ineligible: []selector.Ineligible{{Cluster: clusters[1], Reason: "cordoned"}},
	}
	if _, err := p.SelectCluster(t.Context(), placement); err != nil || !reflect.DeepEqual(e.cluster, placement) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, e.cluster, placement)
	}
	list := selector.ListRequest{User: someone, Project: somewhere, Candidates: clusters}
	if got, err := p.SelectClusters(t.Context(), list); err != nil || !reflect.DeepEqual(e.list, list) || !reflect.DeepEqual(got, selector.Choose("c1")) {
		t.Errorf("%v, %+v\ngot  %+v\nwant %+v", err, got, e.list, list)
	}
	if got, err := p.SelectClusters(t.Context(), selector.ListRequest{}); err != nil || !reflect.DeepEqual(got, selector.ChooseAny("none")) {
		t.Errorf("got %+v, %v", got, err)
	}
	storage := selector.StorageRequest{User: someone, Project: somewhere, Backends: []selector.Backend{{ID: "b", Name: "n", Type: "t", Labels: labels, Default: true}}}
	if got, err := p.SelectStorage(t.Context(), storage); err != nil || !reflect.DeepEqual(e.storage, storage) || got != selector.SelectBackend("b", "first") {
		t.Errorf("%v, %+v\ngot  %+v\nwant %+v", err, got, e.storage, storage)
	}
	if got, err := p.SelectStorage(t.Context(), selector.StorageRequest{}); err != nil || got != selector.AbstainBackend("none") {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAnswers(t *testing.T) {
	e := &echo{}
	p := plugintest.Selector(t, e, "")
	for _, want := range []selector.Answer{selector.Select("c1", "r"), selector.Abstain(""), selector.Refuse("r"), selector.Wait("r")} {
		e.answer = func() (selector.Answer, error) { return want, nil }
		if got, err := p.SelectCluster(t.Context(), selector.Request{Candidates: clusters}); err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
	faults := map[string]struct {
		answer selector.Answer
		err    error
		code   codes.Code
		says   string
	}{
		"no answer":         {answer: selector.Answer{}, code: codes.Internal, says: "no answer"},
		"unknown kind":      {answer: selector.Answer{Kind: 9}, code: codes.Internal, says: "no answer (9)"},
		"no reason":         {answer: selector.Select("c1", ""), code: codes.Internal, says: "without a reason"},
		"refused mutely":    {answer: selector.Refuse(""), code: codes.Internal, says: "without a reason"},
		"no candidate":      {answer: selector.Select("c9", "r"), code: codes.Internal, says: `"c9"`},
		"unavailable":       {err: selector.Unavailable("the price list does not answer"), code: codes.Unavailable, says: "price list"},
		"another service's": {err: status.Error(codes.Unimplemented, "theirs"), code: codes.Unknown, says: "theirs"},
		"input":             {err: field.Errorf("/a", "bad"), code: codes.InvalidArgument, says: "/a: bad"},
		"deadline":          {err: context.DeadlineExceeded, code: codes.DeadlineExceeded},
		"any":               {err: errors.New("oops"), code: codes.Unknown, says: "oops"},
	}
	for name, test := range faults {
		t.Run(name, func(t *testing.T) {
			e.answer = func() (selector.Answer, error) { return test.answer, test.err }
			_, err := p.SelectCluster(t.Context(), selector.Request{Candidates: clusters})
			if plugintest.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %s: %v", plugintest.CodeOf(err), err)
			}
		})
	}
}

type settings struct {
	Name string `json:"name" jsonschema:"minLength=2,default=xx"`
}

// all does everything that a provider may.
type all struct {
	configured string
	connection provider.Connection
	config     any
	verdict    provider.Verdict
}

func (a *all) ConfigSchema() []byte { return schema.MustOf[settings]() }

func (a *all) Configure(_ context.Context, raw json.RawMessage) error {
	c, err := schema.Decode[settings](raw)
	a.configured = c.Name
	return err
}

func (a *all) Types() []provider.Type {
	return []provider.Type{{Name: "t", Title: "T", Schema: schema.MustOf[settings](), Style: provider.SelfService}}
}

func (a *all) Connect(context.Context, provider.Request) (provider.Connection, error) {
	return a.connection, nil
}

func (a *all) ValidateConfig(context.Context, provider.Request) (provider.Valid, error) {
	return provider.Valid{Config: a.config, Warnings: field.Errorf("/name", "short")}, nil
}

func (a *all) TestConnection(context.Context, provider.Request) (provider.Verdict, error) {
	return a.verdict, nil
}

func (a *all) DescribeRegistration(context.Context, provider.Request) (provider.Registration, error) {
	return provider.Registration{Commands: []provider.Command{{Title: "t", Command: "c"}}, Script: []byte("s")}, nil
}

func (a *all) CompleteRegistration(_ context.Context, _ provider.Request, payload json.RawMessage) (any, error) {
	return schema.Decode[settings](payload)
}

func TestProvider(t *testing.T) {
	a := &all{}
	p := plugintest.Provider(t, a, `{}`)
	if a.configured != "xx" {
		t.Errorf("configured with %q instead of the default", a.configured)
	}
	connect := func() (provider.Connection, error) { return p.Connect(t.Context(), "id", "t", `{}`) }

	t.Run("connections", func(t *testing.T) {
		at := time.Unix(1000, 0).UTC()
		a.connection = provider.Connection{Kubeconfig: []byte("k"), ExpiresAt: at, ReplacementConfig: settings{Name: "yy"}}
		got, err := connect()
		if err != nil || string(got.Kubeconfig) != "k" || !got.ExpiresAt.Equal(at) || string(got.ReplacementConfig.(json.RawMessage)) != `{"name":"yy"}` {
			t.Errorf("got %+v, %v", got, err)
		}
		for name, bad := range map[string]provider.Connection{
			"neither":              {},
			"both":                 {Kubeconfig: []byte("k"), BackendEnvironment: true},
			"too large":            {Kubeconfig: make([]byte, 1<<20+1)},
			"replacement":          {Kubeconfig: []byte("k"), ReplacementConfig: settings{Name: "y"}},
			"replacement, a list":  {Kubeconfig: []byte("k"), ReplacementConfig: []string{}},
			"replacement, a cycle": {Kubeconfig: []byte("k"), ReplacementConfig: func() {}},
		} {
			a.connection = bad
			if _, err := connect(); plugintest.CodeOf(err) != codes.Internal {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("configs", func(t *testing.T) {
		a.config = []byte(`{"name":"zz"}`)
		got, err := p.ValidateConfig(t.Context(), "t", `{}`)
		if err != nil || string(got.Config.(json.RawMessage)) != `{"name":"zz"}` || len(got.Warnings) != 1 {
			t.Errorf("got %+v, %v", got, err)
		}
		a.config = settings{}
		if _, err := p.ValidateConfig(t.Context(), "t", `{}`); plugintest.CodeOf(err) != codes.Internal {
			t.Errorf("a config outside of the schema: %v", err)
		}
		var errs field.Errors
		if _, err := p.ValidateConfig(t.Context(), "t", `{"name": "z"}`); !errors.As(err, &errs) || errs[0].Path != "/name" {
			t.Errorf("got %v", err)
		}
		if _, err := p.ValidateConfig(t.Context(), "u", `{}`); plugintest.CodeOf(err) != codes.InvalidArgument {
			t.Errorf("an unknown type: %v", err)
		}
	})
	t.Run("verdicts", func(t *testing.T) {
		a.verdict = provider.Verdict{Class: provider.TLS, Message: "m"}
		if got, err := p.TestConnection(t.Context(), "t", `{}`); err != nil || got != a.verdict {
			t.Errorf("got %+v, %v", got, err)
		}
		for _, bad := range []provider.Verdict{{}, {Class: "odd", Message: "m"}, {Class: provider.OK}} {
			a.verdict = bad
			if _, err := p.TestConnection(t.Context(), "t", `{}`); plugintest.CodeOf(err) != codes.Internal {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
	t.Run("registrations", func(t *testing.T) {
		got, err := p.DescribeRegistration(t.Context(), "t", "")
		if err != nil || string(got.Script) != "s" || !reflect.DeepEqual(got.Commands, []provider.Command{{Title: "t", Command: "c"}}) {
			t.Errorf("got %+v, %v", got, err)
		}
		config, err := p.CompleteRegistration(t.Context(), "t", "", `{"name": "zz"}`)
		if err != nil || string(config) != `{"name":"zz"}` {
			t.Errorf("got %s, %v", config, err)
		}
		var errs field.Errors
		if _, err := p.CompleteRegistration(t.Context(), "t", "", `[]`); !errors.As(err, &errs) {
			t.Errorf("got %v", err)
		}
	})
}

package process_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// shelf keeps what the service hands over.
type shelf struct {
	rows []process.NewVersion
	err  error
}

func (s *shelf) Submit(_ context.Context, projectID string, in []process.NewVersion) ([]process.Version, []bool, error) {
	if s.err != nil {
		return nil, nil, s.err
	}
	s.rows = append(s.rows, in...)
	out := make([]process.Version, len(in))
	for i, n := range in {
		out[i] = process.Version{ID: n.ID, ProjectID: projectID, Spec: n.Spec, BodyHash: n.BodyHash}
	}
	return out, make([]bool, len(in)), nil
}

func (s *shelf) RequestCancel(context.Context, string, string, time.Time) (process.Version, error) {
	return process.Version{}, process.ErrNotFound
}

func service(s *shelf) *process.Service {
	return process.NewService(s, func(_ context.Context, ref string) (string, bool, error) {
		return "id-of-" + ref, ref == "gpu", nil
	})
}

func good() process.Submission {
	return process.Submission{Name: "train", Spec: process.Spec{Image: "busybox"}}
}

func TestSubmitRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*process.Submission)
		field  string
		says   string
		code   problem.Code
	}{
		"no name":                      {func(s *process.Submission) { s.Name = "" }, "name", "missing", problem.Invalid},
		"B22 254 characters":           {func(s *process.Submission) { s.Name = strings.Repeat("ö", 254) }, "name", "at most 253", problem.Invalid},
		"control character":            {func(s *process.Submission) { s.Name = "a\nb" }, "name", "control", problem.Invalid},
		"blank ends":                   {func(s *process.Submission) { s.Name = " a" }, "name", "blank", problem.Invalid},
		"not UTF-8":                    {func(s *process.Submission) { s.Name = "a\xff" }, "name", "UTF-8", problem.Invalid},
		"no image":                     {func(s *process.Submission) { s.Spec.Image = "" }, "spec.image", "missing", problem.Invalid},
		"blank in image":               {func(s *process.Submission) { s.Spec.Image = "a b" }, "spec.image", "blank", problem.Invalid},
		"env name":                     {func(s *process.Submission) { s.Spec.Env = []process.EnvVar{{Name: "1A"}} }, "spec.env[0].name", "no digit first", problem.Invalid},
		"env twice":                    {func(s *process.Submission) { s.Spec.Env = []process.EnvVar{{Name: "A"}, {Name: "A"}} }, "spec.env[1].name", "spec.env[0]", problem.Invalid},
		"NUL in args":                  {func(s *process.Submission) { s.Spec.Args = []string{"a\x00"} }, "spec.args[0]", "NUL", problem.Invalid},
		"relative working dir":         {func(s *process.Submission) { s.Spec.WorkingDir = "x" }, "spec.working_dir", "absolute", problem.Invalid},
		"retries":                      {func(s *process.Submission) { s.Spec.Retries = -1 }, "spec.retries", "0 to", problem.Invalid},
		"max runtime":                  {func(s *process.Submission) { s.Spec.MaxRuntimeSeconds = new(int64) }, "spec.max_runtime_seconds", "1 to", problem.Invalid},
		"queue":                        {func(s *process.Submission) { s.Spec.QueueName = "A_b" }, "spec.queue_name", "Kubernetes name", problem.Invalid},
		"node selector":                {func(s *process.Submission) { s.Spec.NodeSelector = map[string]string{"a": "b:c"} }, "spec.node_selector[a]", "label value", problem.Invalid},
		"unknown cluster":              {func(s *process.Submission) { s.Spec.Cluster = "moon" }, "spec.cluster", `no cluster "moon"`, problem.UnknownCluster},
		"B33 negative GPU":             {gpu("", "-1"), "spec.limits[nvidia.com/gpu]", "negative", problem.Invalid},
		"B33 fractional GPU":           {gpu("", "1.5"), "spec.limits[nvidia.com/gpu]", "whole number", problem.Invalid},
		"B33 request 1 limit 3":        {gpu("1", "3"), "spec.limits[nvidia.com/gpu]", "both equal", problem.Invalid},
		"B33 GPU of another vendor":    {limits("amd.com/gpu", "500m"), "spec.limits[amd.com/gpu]", "whole number", problem.Invalid},
		"no quantity":                  {limits("memory", "lots"), "spec.limits[memory]", "no Kubernetes quantity", problem.Invalid},
		"beyond 64 bits":               {limits("memory", "1e30"), "spec.limits[memory]", "more than any cluster", problem.Invalid},
		"unknown resource":             {limits("gpu", "1"), "spec.limits[gpu]", "no resource", problem.Invalid},
		"limit below request":          {both("cpu", "2", "1"), "spec.limits[cpu]", "less than the request", problem.Invalid},
		"memory in thousandths":        {limits("memory", "100m"), "spec.limits[memory]", "whole number of bytes", problem.Invalid},
		"finer than a milli of a core": {limits("cpu", "100u"), "spec.limits[cpu]", "finer", problem.Invalid},
		"too large": {func(s *process.Submission) { s.Spec.Args = []string{strings.Repeat("x", process.MaxSpecBytes)} },
			"spec", "at most", problem.TooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sub, store := good(), &shelf{}
			test.change(&sub)
			_, err := service(store).Submit(t.Context(), "u", "p", []process.Submission{good(), sub}, true)
			var p *problem.Error
			if !errors.As(err, &p) {
				t.Fatalf("want a refusal, got %v", err)
			}
			if p.Code != test.code || len(p.Fields) != 1 || p.Fields[0].Field != "items[1]."+test.field || !strings.Contains(p.Fields[0].Message, test.says) {
				t.Errorf("got code %s, fields %v", p.Code, p.Fields)
			}
			if len(store.rows) > 0 {
				t.Error("something was stored")
			}
		})
	}
}

func both(name, request, limit string) func(*process.Submission) {
	return func(s *process.Submission) {
		if request != "" {
			s.Spec.Requests = map[string]string{name: request}
		}
		if limit != "" {
			s.Spec.Limits = map[string]string{name: limit}
		}
	}
}

func gpu(request, limit string) func(*process.Submission) {
	return both("nvidia.com/gpu", request, limit)
}

func limits(name, q string) func(*process.Submission) { return both(name, "", q) }

func TestQuantitiesAreCanonical(t *testing.T) {
	tests := map[string]struct {
		change           func(*process.Submission)
		requests, limits map[string]string
	}{
		"B33 1000m is one GPU":   {gpu("", "1000m"), map[string]string{"nvidia.com/gpu": "1"}, map[string]string{"nvidia.com/gpu": "1"}},
		"GPU request alone":      {gpu("2", ""), map[string]string{"nvidia.com/gpu": "2"}, map[string]string{"nvidia.com/gpu": "2"}},
		"1 and 1000m are equal":  {gpu("1", "1000m"), map[string]string{"nvidia.com/gpu": "1"}, map[string]string{"nvidia.com/gpu": "1"}},
		"cpu request alone":      {both("cpu", "1000m", ""), map[string]string{"cpu": "1"}, nil},
		"memory":                 {both("memory", "1024Mi", "2Gi"), map[string]string{"memory": "1Gi"}, map[string]string{"memory": "2Gi"}},
		"half a core":            {both("cpu", "0.5", ""), map[string]string{"cpu": "500m"}, nil},
		"huge pages are pinned":  {limits("hugepages-2Mi", "4Mi"), map[string]string{"hugepages-2Mi": "4Mi"}, map[string]string{"hugepages-2Mi": "4Mi"}},
		"nothing asked, nothing": {func(*process.Submission) {}, nil, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sub := good()
			test.change(&sub)
			got, err := service(&shelf{}).Submit(t.Context(), "u", "p", []process.Submission{sub}, false)
			if err != nil {
				t.Fatal(err)
			}
			spec := got[0].Version.Spec
			if d := cmp.Diff(test.requests, spec.Requests); d != "" {
				t.Error("requests", d)
			}
			if d := cmp.Diff(test.limits, spec.Limits); d != "" {
				t.Error("limits", d)
			}
		})
	}
}

// B22: names that break other products are taken as they are; the Job's name is another matter.
func TestNamesAreKept(t *testing.T) {
	for _, name := range []string{strings.Repeat("a", 64), strings.Repeat("b", 200), "Größe_Test/1", "🦊", "-x-", "123", "UPPER",
		strings.Repeat("c", 54) + "---------" + "d"} {
		store, sub := &shelf{}, good()
		sub.Name = name
		if _, err := service(store).Submit(t.Context(), "u", "p", []process.Submission{sub}, false); err != nil {
			t.Errorf("%q: %v", name, err)
		} else if store.rows[0].ProcessName != name {
			t.Errorf("%q became %q", name, store.rows[0].ProcessName)
		}
	}
}

func TestBodyHash(t *testing.T) {
	hash := func(change func(*process.Submission)) string {
		store, sub := &shelf{}, good()
		change(&sub)
		if _, err := service(store).Submit(t.Context(), "u", "p", []process.Submission{sub}, false); err != nil {
			t.Fatal(err)
		}
		return store.rows[0].BodyHash
	}
	one := hash(gpu("1", "1"))
	if other := hash(gpu("", "1000m")); other != one {
		t.Error("the same work written otherwise has another hash")
	}
	if other := hash(gpu("2", "2")); other == one {
		t.Error("other work has the same hash")
	}
	if withKey := hash(func(s *process.Submission) { gpu("1", "1")(s); s.Key = "k" }); withKey != one {
		t.Error("the key changes the hash")
	}
}

func TestBulkRefusesAKeyTwice(t *testing.T) {
	a, b := good(), good()
	a.Key, b.Key = "k", "k"
	_, err := service(&shelf{}).Submit(t.Context(), "u", "p", []process.Submission{a, b}, true)
	var p *problem.Error
	if !errors.As(err, &p) || p.Fields[0].Field != "items[1].key" {
		t.Errorf("got %v", err)
	}
}

func TestKeyReusedIsARefusal(t *testing.T) {
	store := &shelf{err: fmt.Errorf("key %q: %w", "k", process.ErrKeyReused)}
	_, err := service(store).Submit(t.Context(), "u", "p", []process.Submission{good()}, false)
	if !problem.Is(err, problem.IdempotencyKeyReused) || !errors.Is(err, process.ErrKeyReused) {
		t.Errorf("got %v", err)
	}
}

func TestClusterByName(t *testing.T) {
	sub := good()
	sub.Spec.Cluster = "gpu"
	got, err := service(&shelf{}).Submit(t.Context(), "u", "p", []process.Submission{sub}, false)
	if err != nil || got[0].Version.Spec.Cluster != "id-of-gpu" {
		t.Errorf("got %v, %v", got, err)
	}
}

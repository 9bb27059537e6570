package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Consent is what an admin says beside the fields of a create or update.
type Consent struct {
	// SkipTest stores a connection that cannot be reached now. The policy for kubeconfigs holds all the same.
	SkipTest bool
	// Identity says yes to a connection that leads to another cluster than before, or to the cluster of another row.
	Identity bool
}

// TestNew tests a connection that is not stored. The error is about the request; whatever the test finds is in the report.
func (s *Service) TestNew(ctx context.Context, n NewCluster) (Report, error) {
	var f faults
	f.namespace(n.Namespace)
	f.queue(n.QueueName)
	if len(f) > 0 {
		return Report{}, problem.Fields(problem.Invalid, f)
	}
	return s.testEntered(ctx, Cluster{Type: n.Type, ProviderConfig: orEmpty(n.ProviderConfig), Namespace: n.Namespace, QueueName: n.QueueName})
}

// TestRow tests the connection of a row: what is stored when the patch is empty, and the report is kept then; else what the
// row would be with the patch.
func (s *Service) TestRow(ctx context.Context, id string, p Patch) (Report, error) {
	if err := p.check(); err != nil {
		return Report{}, err
	}
	c, err := s.store.Cluster(ctx, id)
	if err != nil {
		return Report{}, err
	}
	stored := p.Type == nil && p.ProviderConfig == nil && p.Namespace == nil && p.QueueName == nil
	if stored {
		r, err := s.test(ctx, c)
		if err != nil {
			return Report{}, err
		}
		return r, s.store.SetLastTest(ctx, c.ID, c.ConfigRevision, r)
	}
	if p.retypes(c) && p.ProviderConfig == nil {
		return Report{}, needsConfig()
	}
	entered := c
	p.apply(&entered, p.ProviderConfig)
	if p.ProviderConfig != nil {
		return s.testEntered(ctx, entered)
	}
	return s.test(ctx, entered)
}

// LastTest returns the report of the last test of a row's connection as it is now; nil: there was none.
func (s *Service) LastTest(ctx context.Context, c Cluster) (*Report, error) {
	return s.store.LastTest(ctx, c.ID, c.ConfigRevision)
}

// testEntered has the provider check a config first. What it says of the config is a finding like any other.
func (s *Service) testEntered(ctx context.Context, c Cluster) (Report, error) {
	began := time.Now()
	config, warnings, err := s.providers.ValidateConfig(ctx, c.Type, c.ProviderConfig)
	var bad *problem.Error
	if errors.As(err, &bad) && bad.Code == problem.Invalid {
		took := float64(time.Since(began)) / float64(time.Millisecond)
		r := Report{
			Class: ClassConfig, Message: bad.Detail, Remedy: "Correct the fields that are named.", TestedAt: began.UTC().Truncate(time.Microsecond), TookMS: took,
			Phases: []Phase{{Name: "provider", TookMS: took, Message: bad.Detail}},
		}
		for _, f := range bad.Fields {
			r.Fields = append(r.Fields, ReportField(f))
		}
		return r, nil
	}
	if err != nil {
		return Report{}, err
	}
	c.ProviderConfig = config
	r, err := s.test(ctx, c)
	r.Warnings = append(warnings, r.Warnings...)
	return r, err
}

// test asks the tester, and says how what it found stands to the other rows. The error is that of a caller who is gone, or
// of the store.
func (s *Service) test(ctx context.Context, c Cluster) (Report, error) {
	r := s.tester.Test(ctx, c)
	if err := ctx.Err(); err != nil {
		return Report{}, err // half a test says nothing about the cluster
	}
	if r.Identity == "" {
		return r, nil
	}
	all, err := s.store.Clusters(ctx)
	if err != nil {
		return Report{}, err
	}
	r.SameAs = nil
	for _, other := range all {
		if same, _ := r.recognise(other.Observed); same && other.ID != c.ID && other.Active {
			r.SameAs = append(r.SameAs, other.Name)
		}
	}
	if len(r.SameAs) > 0 {
		r.Warnings = append(r.Warnings, "It is the same cluster as "+quoted(r.SameAs)+": its capacity is counted once for each entry.")
	}
	if same, told := r.recognise(c.Observed); c.ID != "" && told && !same {
		r.Warnings = append(r.Warnings, "It is another cluster than the entry led to before.")
	}
	return r, nil
}

// tried is how a connection that is about to be stored was found.
type tried struct {
	report   *Report // nil: not tested
	identity string  // empty: unknown
	// namespaceUID is as Observed.NamespaceUID.
	namespaceUID string
	forget       bool // the identity of before: the next look at the cluster takes what it finds
	warnings     []string
}

// try tests a connection before it is stored; before is the row as it is, without an id for a new one. What may not be
// stored is an error.
func (s *Service) try(ctx context.Context, before, next Cluster, consent Consent) (t tried, err error) {
	if consent.SkipTest {
		r := s.tester.Check(ctx, next)
		switch {
		case ctx.Err() != nil:
			return t, ctx.Err()
		case r.OK:
			t.warnings = append(r.Warnings, "The connection was not tested.")
		case r.Class == ClassPolicy, r.Class == ClassConfig:
			return t, testFailed(r)
		default:
			t.warnings = append(r.Warnings, "The connection was not tested: "+r.Message)
		}
		t.forget = consent.Identity
		return t, nil
	}
	r, err := s.test(ctx, next)
	if err != nil {
		return t, err
	}
	if !r.OK {
		return t, testFailed(r)
	}
	t = tried{report: &r, identity: r.Identity, namespaceUID: r.NamespaceUID, warnings: r.Warnings}
	known := before.Observed.Identity
	same, told := r.recognise(before.Observed)
	switch {
	case same:
		t.identity = known
	case told && !consent.Identity:
		return t, problem.New(problem.IdentityChanged,
			"the connection leads to another cluster than cluster %q did before (identity %s, not %s): add another entry for it, or confirm", before.Name, r.Identity, known).
			With("identity", r.Identity).With("was", known).With("report", r)
	case len(r.SameAs) > 0 && !consent.Identity:
		return t, problem.New(problem.IdentityInUse,
			"it is the same cluster as %s: use that entry, or confirm that it is to have several", quoted(r.SameAs)).With("same_as", r.SameAs).With("report", r)
	case known == "" || told:
	case consent.Identity:
		t.forget = r.Identity == ""
	default:
		t.identity, t.namespaceUID = "", ""
		t.warnings = append(t.warnings, "The account does not see by what the cluster was known, so nobody can say whether it is the same one as before.")
	}
	return t, nil
}

func testFailed(r Report) error {
	fields := make([]problem.Field, 0, len(r.Fields))
	for _, f := range r.Fields {
		fields = append(fields, problem.Field(f))
	}
	if len(fields) == 0 {
		fields = append(fields, problem.Field{Field: "provider_config", Message: r.Message})
	}
	p := problem.Fields(problem.ConnectionTestFailed, fields).With("report", r)
	p.Detail = strings.TrimSpace("the connection test failed: " + r.Message + " " + r.Remedy)
	return p
}

func needsConfig() error {
	return problem.InField(problem.Invalid, "provider_config", "is missing: a new type needs its own")
}

func quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		raw, err := json.Marshal(n)
		if err != nil {
			raw = []byte(n) // a string always encodes
		}
		out[i] = string(raw)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

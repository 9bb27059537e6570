package placement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
)

// Store is what the engine reads.
type Store interface {
	// Clusters returns every cluster that is not removed, by sort order, then by name.
	Clusters(ctx context.Context) ([]cluster.Cluster, error)
	// DefaultCluster returns the id of the default cluster; empty: none is set.
	DefaultCluster(ctx context.Context) (string, error)
}

// Options configure an Engine.
type Options struct {
	Store Store
	// Selectors returns the chain in name order; it is asked anew for each decision.
	Selectors func() []Selector
	// ServedTypes returns the cluster types that a provider plugin serves now.
	ServedTypes func() map[string]string
	// Ledger counts what is placed but not visible at the clusters yet.
	Ledger *Ledger
	// Binding makes selectors binding over the cluster that a submission asks for.
	Binding bool
	// Observe is told of every plugin call and every decision; nil: nobody.
	Observe func(Decision)
}

// Engine makes decisions. It is safe for concurrent use.
type Engine struct{ o Options }

// New returns an engine.
func New(o Options) *Engine { return &Engine{o: o} }

// rounds bounds how often one decision is made again because another placement took what it counted on.
const rounds = 5

// Decide says where the attempt goes, and reserves its resources there when it is placed and no dry run: the caller
// stores the decision and calls Ledger.Release when that fails. The error is about the engine's own reading; whatever a
// plugin did wrong is in the decision.
func (e *Engine) Decide(ctx context.Context, attemptID string, r Request) (Decision, error) {
	for round := 1; ; round++ {
		v, err := e.look(ctx, r.Project)
		if err != nil {
			return Decision{}, err
		}
		d := e.decide(ctx, v, r)
		d.ID, d.AttemptID, d.At = uuid.Must(uuid.NewV7()).String(), attemptID, v.at
		if d.Outcome == Placed && !r.DryRun {
			requests, seen := Requests(r.Version.Spec), v.seen
			if round == rounds || !fits(v.find(d.ClusterID).Capacity, requests) {
				// Nothing to lose: it was known to queue there, or others were quicker each time.
				seen = nil
			}
			if !e.o.Ledger.reserve(attemptID, d.ClusterID, requests, seen) {
				continue
			}
		}
		if e.o.Observe != nil {
			e.o.Observe(d)
		}
		return d, nil
	}
}

// Choices lists the clusters that a user may choose from in a project, best first, and what is wrong when it cannot be
// told.
func (e *Engine) Choices(ctx context.Context, u User, p Project) ([]Candidate, error) {
	v, err := e.look(ctx, p)
	if err != nil {
		return nil, err
	}
	d := Decision{}
	snap, stop := e.restrict(ctx, v, u, p, &d)
	if stop {
		return nil, fmt.Errorf("list the clusters to choose from: %s", d.Reason)
	}
	return snap.Candidates, nil
}

// view is everything that one decision reads, as of one moment.
type view struct {
	at        time.Time
	all       []Candidate // with Excluded filled in
	defaultID string
	seen      map[string]int64 // ledger generation by cluster
}

func (v *view) find(id string) *Candidate {
	for i := range v.all {
		if v.all[i].ID == id {
			return &v.all[i]
		}
	}
	return nil
}

func (v *view) eligible() []Candidate {
	out := make([]Candidate, 0, len(v.all))
	for _, c := range v.all {
		if c.Excluded == "" {
			out = append(out, c)
		}
	}
	return out
}

// ineligible returns what is no candidate only for now; never nil.
func (v *view) ineligible() []Candidate {
	out := []Candidate{}
	for _, c := range v.all {
		if c.Passing {
			out = append(out, c)
		}
	}
	return out
}

func (e *Engine) look(ctx context.Context, p Project) (*view, error) {
	clusters, err := e.o.Store.Clusters(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the clusters: %w", err)
	}
	def, err := e.o.Store.DefaultCluster(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the default cluster: %w", err)
	}
	served := e.o.ServedTypes()
	v := &view{
		at: time.Now().UTC().Truncate(time.Microsecond), defaultID: def,
		all: make([]Candidate, 0, len(clusters)), seen: make(map[string]int64, len(clusters)),
	}
	for _, c := range clusters {
		load := e.o.Ledger.load(c.ID, c.Observed.Capacity)
		v.seen[c.ID] = load.generation
		excluded := exclusion(c, served, p)
		v.all = append(v.all, Candidate{
			ID: c.ID, Name: c.Name, Type: c.Type, Labels: c.Labels, SortOrder: c.SortOrder,
			Version: c.Observed.Version, Health: health(c), Capacity: load.capacity, Active: load.active,
			Default: c.ID == def, Excluded: excluded, Passing: excluded != "" && c.Active && allowed(p, c.ID),
		})
	}
	return v, nil
}

// allowed says whether the project may use a cluster at all.
func allowed(p Project, id string) bool {
	return p.Allowed == nil || slices.Contains(p.Allowed, id)
}

func health(c cluster.Cluster) cluster.Health {
	if c.Observed.Health == "" {
		return cluster.New
	}
	return c.Observed.Health
}

// exclusion says why a cluster is no candidate; empty: it is one.
func exclusion(c cluster.Cluster, served map[string]string, p Project) string {
	switch {
	case !c.Active:
		return "retired"
	case c.Cordon != nil:
		return strings.TrimSuffix("cordoned: "+c.Cordon.Reason, ": ")
	case c.Provisioning != "" && c.Provisioning != cluster.Provisioned:
		return "registration is " + string(c.Provisioning)
	case served[c.Type] == "":
		return fmt.Sprintf("no provider plugin serves its type %q now", c.Type)
	case c.Observed.Health == cluster.Suspect || c.Observed.Health == cluster.Lost:
		return strings.TrimSuffix(fmt.Sprintf("%s: %s", c.Observed.Health, c.Observed.Message), ": ")
	case !allowed(p, c.ID):
		return fmt.Sprintf("not allowed for project %q", p.Name)
	}
	return ""
}

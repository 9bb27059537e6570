package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Store is what the service reads and writes.
type Store interface {
	Clusters(ctx context.Context) ([]Cluster, error)
	Cluster(ctx context.Context, id string) (Cluster, error)
	CreateCluster(ctx context.Context, c Cluster) (Cluster, error)
	// UpdateCluster changes one row; with a revision only when the row still has it, else ErrStale.
	UpdateCluster(ctx context.Context, id string, revision *int64, change func(*Cluster) error) (Cluster, error)
	// DeleteCluster removes a row; ErrInUse while attempts live there.
	DeleteCluster(ctx context.Context, id string) error
	// LiveStatesOn returns the number of attempts that live on the cluster, by state.
	LiveStatesOn(ctx context.Context, id string) (map[string]int32, error)
	// LastTest returns the report that SetLastTest stored for the config revision; nil: none.
	LastTest(ctx context.Context, id string, configRevision int64) (*Report, error)
	SetLastTest(ctx context.Context, id string, configRevision int64, r Report) error
	DefaultCluster(ctx context.Context) (string, error)
	SetSetting(ctx context.Context, key, value string) error
}

// Providers checks provider configs.
type Providers interface {
	// ValidateConfig returns the normalised config to store and remarks on it. A refusal of the config is a *problem.Error
	// with fields below provider_config, as is that nobody serves the type or the plugin cannot answer now.
	ValidateConfig(ctx context.Context, clusterType string, config json.RawMessage) (normalised json.RawMessage, warnings []string, err error)
}

// NewCluster are the fields of a new cluster.
type NewCluster struct {
	Name           string
	Type           string
	ProviderConfig json.RawMessage // empty: {}
	Namespace      string
	Labels         map[string]string
	SortOrder      int32
	Active         bool
	QueueName      string
	MaxRuntime     *int64 // seconds; nil: no limit
	Consent        Consent
}

// Patch are the fields to change; nil: not touched.
type Patch struct {
	Name           *string
	Type           *string
	ProviderConfig json.RawMessage
	Namespace      *string
	Labels         *map[string]string
	SortOrder      *int32
	Active         *bool
	QueueName      *string
	MaxRuntime     *Limit
	Consent        Consent
}

// Limit is a limit in seconds; nil: none.
type Limit struct{ Seconds *int64 }

// settingDefault is the key of the setting that holds the id of the default cluster.
const settingDefault = "default_cluster"

// Service is what admins do with clusters. Who may do so is decided before. It is safe for concurrent use.
type Service struct {
	store     Store
	providers Providers
	tester    Tester
	remover   Remover
}

// NewService returns a service.
func NewService(store Store, providers Providers, tester Tester, remover Remover) *Service {
	return &Service{store: store, providers: providers, tester: tester, remover: remover}
}

// Find returns the cluster of that id or else of that name; ErrNotFound when there is none.
func (s *Service) Find(ctx context.Context, ref string) (Cluster, error) {
	c, err := s.store.Cluster(ctx, ref)
	if err == nil || !errors.Is(err, ErrNotFound) {
		return c, err
	}
	all, err := s.store.Clusters(ctx)
	if err != nil {
		return Cluster{}, err
	}
	for _, c := range all {
		if c.Name == ref {
			return c, nil
		}
	}
	return Cluster{}, fmt.Errorf("%w: %q", ErrNotFound, ref)
}

// Create adds a cluster; the provider of its type checks the config and the connection is tested first, outside of any
// transaction.
func (s *Service) Create(ctx context.Context, n NewCluster) (Cluster, []string, error) {
	n.Name = strings.TrimSpace(n.Name)
	var f faults
	f.name("name", n.Name)
	f.namespace(n.Namespace)
	f.labels(n.Labels)
	f.queue(n.QueueName)
	f.maxRuntime(n.MaxRuntime)
	if len(f) > 0 {
		return Cluster{}, nil, problem.Fields(problem.Invalid, f)
	}
	config, warnings, err := s.providers.ValidateConfig(ctx, n.Type, orEmpty(n.ProviderConfig))
	if err != nil {
		return Cluster{}, nil, err
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	c := Cluster{
		Name: n.Name, Type: n.Type, ProviderConfig: config, Namespace: n.Namespace,
		Labels: n.Labels, SortOrder: n.SortOrder, Active: n.Active, QueueName: n.QueueName, MaxRuntime: n.MaxRuntime,
		Provisioning: Provisioned, Observed: Observed{Health: New},
		CreatedAt: now, UpdatedAt: now, Revision: 1, ConfigRevision: 1,
	}
	t, err := s.try(ctx, Cluster{}, c, n.Consent)
	if err != nil {
		return Cluster{}, nil, err
	}
	c.ID, c.Observed.Identity, c.Observed.NamespaceUID = uuid.Must(uuid.NewV7()).String(), t.identity, t.namespaceUID
	if c, err = s.store.CreateCluster(ctx, c); err != nil {
		return Cluster{}, nil, refusal(n.Name, err)
	}
	return c, append(warnings, t.warnings...), s.keep(ctx, c, t)
}

// keep stores the report of the test that a stored connection has passed.
func (s *Service) keep(ctx context.Context, c Cluster, t tried) error {
	if t.report == nil {
		return nil
	}
	return s.store.SetLastTest(ctx, c.ID, c.ConfigRevision, *t.report)
}

// Update touches only what the patch has. A new type needs a config of its own; the same type without one keeps the
// stored. The connection is tested when either is sent. With a revision the change is made only when the row still has it.
func (s *Service) Update(ctx context.Context, id string, revision *int64, p Patch) (Cluster, []string, error) {
	if p.Name != nil {
		name := strings.TrimSpace(*p.Name)
		p.Name = &name
	}
	if err := p.check(); err != nil {
		return Cluster{}, nil, err
	}
	now, err := s.store.Cluster(ctx, id)
	if err != nil {
		return Cluster{}, nil, err
	}
	if revision != nil && *revision != now.Revision {
		return Cluster{}, nil, refusal(now.Name, ErrStale)
	}
	if p.Namespace != nil && *p.Namespace != now.Namespace {
		if err := s.unused(ctx, now, "its namespace cannot change"); err != nil {
			return Cluster{}, nil, err
		}
	}
	config, warnings, err := s.configOf(ctx, now, p)
	if err != nil {
		return Cluster{}, nil, err
	}
	guard := revision
	var t tried
	if p.connects() {
		// What is tested here must be what is stored.
		guard = &now.Revision
		next := now
		p.apply(&next, config)
		if t, err = s.try(ctx, now, next, p.Consent); err != nil {
			return Cluster{}, nil, s.withLive(ctx, now, err)
		}
		if known := now.Observed.Identity; known != "" && (t.forget || t.identity != "" && t.identity != known) {
			if err := s.unused(ctx, now, "its connection cannot lead to another cluster"); err != nil {
				return Cluster{}, nil, err
			}
		}
	}
	c, err := s.store.UpdateCluster(ctx, id, guard, func(c *Cluster) error {
		p.apply(c, config)
		if t.identity != "" || t.forget {
			c.Observed.Identity, c.Observed.NamespaceUID = t.identity, t.namespaceUID
		}
		return nil
	})
	if err != nil {
		return Cluster{}, nil, refusal(now.Name, err)
	}
	return c, append(warnings, t.warnings...), s.keep(ctx, c, t)
}

// configOf returns the normalised config of a patch; nil: it has none.
func (s *Service) configOf(ctx context.Context, now Cluster, p Patch) (config json.RawMessage, warnings []string, err error) {
	switch {
	case p.ProviderConfig != nil:
		kind := now.Type
		set(&kind, p.Type)
		return s.providers.ValidateConfig(ctx, kind, p.ProviderConfig)
	case p.retypes(now):
		return nil, nil, needsConfig()
	}
	return nil, nil, nil
}

// withLive adds to a refusal of another cluster that confirming would not help while attempts live there.
func (s *Service) withLive(ctx context.Context, c Cluster, err error) error {
	if !problem.Is(err, problem.IdentityChanged) {
		return err
	}
	if inUse := s.unused(ctx, c, "its connection cannot lead to another cluster; add another entry for that one"); inUse != nil {
		var p *problem.Error
		if errors.As(inUse, &p) {
			p.Code = problem.IdentityChanged
		}
		return inUse
	}
	return err
}

// connects says whether the patch is about the connection.
func (p Patch) connects() bool { return p.Type != nil || p.ProviderConfig != nil }

// retypes says whether the patch gives the row another type.
func (p Patch) retypes(c Cluster) bool { return p.Type != nil && *p.Type != c.Type }

// Cordon has nothing new placed on a cluster; nil takes it back.
func (s *Service) Cordon(ctx context.Context, id string, cordon *Cordon) (Cluster, error) {
	c, err := s.store.UpdateCluster(ctx, id, nil, func(c *Cluster) error {
		next := cordon
		if cordon != nil && c.Cordon != nil {
			next = &Cordon{By: cordon.By, Reason: cordon.Reason, At: c.Cordon.At} // it holds since then
		}
		c.Cordon = next
		return nil
	})
	return c, err
}

func (p Patch) check() error {
	var f faults
	if p.Name != nil {
		f.name("name", *p.Name)
	}
	if p.Namespace != nil {
		f.namespace(*p.Namespace)
	}
	if p.Labels != nil {
		f.labels(*p.Labels)
	}
	if p.QueueName != nil {
		f.queue(*p.QueueName)
	}
	if p.MaxRuntime != nil {
		f.maxRuntime(p.MaxRuntime.Seconds)
	}
	if len(f) > 0 {
		return problem.Fields(problem.Invalid, f)
	}
	return nil
}

func (p Patch) apply(c *Cluster, config json.RawMessage) {
	set(&c.Name, p.Name)
	set(&c.Type, p.Type)
	set(&c.Namespace, p.Namespace)
	set(&c.SortOrder, p.SortOrder)
	set(&c.Active, p.Active)
	set(&c.QueueName, p.QueueName)
	if p.Labels != nil {
		c.Labels = maps.Clone(*p.Labels)
	}
	if p.MaxRuntime != nil {
		c.MaxRuntime = p.MaxRuntime.Seconds
	}
	if config != nil {
		c.ProviderConfig = config
	}
}

func set[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

// unused refuses while attempts live on the cluster. It is a look beforehand for a good answer; the store decides.
func (s *Service) unused(ctx context.Context, c Cluster, what string) error {
	states, err := s.store.LiveStatesOn(ctx, c.ID)
	if err != nil {
		return err
	}
	var n int32
	for _, some := range states {
		n += some
	}
	if n == 0 {
		return nil
	}
	return problem.New(problem.ClusterInUse, "cluster %q has live attempts (%d): %s", c.Name, n, what).
		With("live_attempts", n).With("live_states", states)
}

// Default returns the default cluster; false: none is set, or it was removed.
func (s *Service) Default(ctx context.Context) (Cluster, bool, error) {
	id, err := s.store.DefaultCluster(ctx)
	if err != nil || id == "" {
		return Cluster{}, false, err
	}
	c, err := s.store.Cluster(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return Cluster{}, false, nil
	}
	return c, err == nil, err
}

// SetDefault sets the default cluster by id or name; empty: none.
func (s *Service) SetDefault(ctx context.Context, ref string) error {
	if ref == "" {
		return s.store.SetSetting(ctx, settingDefault, "")
	}
	c, err := s.Find(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		return problem.InField(problem.UnknownCluster, "cluster", "there is no cluster %q", ref)
	}
	if err != nil {
		return err
	}
	if !c.Active {
		return problem.InField(problem.Invalid, "cluster", "cluster %q is retired (active is false)", c.Name)
	}
	return s.store.SetSetting(ctx, settingDefault, c.ID)
}

func refusal(name string, err error) error {
	switch {
	case errors.Is(err, ErrNameUsed):
		return problem.InField(problem.NameInUse, "name", "another cluster has this name").Because(err)
	case errors.Is(err, ErrStale):
		return problem.New(problem.Stale, "cluster %q was changed meanwhile: read it again", name).Because(err)
	case errors.Is(err, ErrInUse):
		return problem.New(problem.ClusterInUse, "attempts live on cluster %q", name).Because(err)
	}
	return err
}

func orEmpty(config json.RawMessage) json.RawMessage {
	if len(config) == 0 {
		return json.RawMessage("{}")
	}
	return config
}

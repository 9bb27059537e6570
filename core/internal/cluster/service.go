package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
	LiveCounts(ctx context.Context) (map[string]int32, error)
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
	MaxRuntime     int64 // seconds; 0: no limit
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
	MaxRuntime     *int64 // seconds; 0: no limit
}

// settingDefault is the key of the setting that holds the id of the default cluster.
const settingDefault = "default_cluster"

// Service is what admins do with clusters. Who may do so is decided before. It is safe for concurrent use.
type Service struct {
	store     Store
	providers Providers
}

// NewService returns a service.
func NewService(store Store, providers Providers) *Service {
	return &Service{store: store, providers: providers}
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

// Create adds a cluster; the provider of its type checks the config first, outside of any transaction.
func (s *Service) Create(ctx context.Context, n NewCluster) (Cluster, []string, error) {
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
	c, err := s.store.CreateCluster(ctx, Cluster{
		ID: uuid.Must(uuid.NewV7()).String(), Name: n.Name, Type: n.Type, ProviderConfig: config, Namespace: n.Namespace,
		Labels: n.Labels, SortOrder: n.SortOrder, Active: n.Active, QueueName: n.QueueName, MaxRuntime: limit(n.MaxRuntime),
		Provisioning: Provisioned, Observed: Observed{Health: New},
		CreatedAt: now, UpdatedAt: now, Revision: 1, ConfigRevision: 1,
	})
	if err != nil {
		return Cluster{}, nil, refusal(n.Name, err)
	}
	return c, warnings, nil
}

// Update touches only what the patch has. A new type needs a config of its own; the same type without one keeps the
// stored. With a revision the change is made only when the row still has it.
func (s *Service) Update(ctx context.Context, id string, revision *int64, p Patch) (Cluster, []string, error) {
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
	retyped := p.Type != nil && *p.Type != now.Type
	var config json.RawMessage
	var warnings []string
	switch {
	case p.ProviderConfig != nil:
		kind := now.Type
		if p.Type != nil {
			kind = *p.Type
		}
		if config, warnings, err = s.providers.ValidateConfig(ctx, kind, p.ProviderConfig); err != nil {
			return Cluster{}, nil, err
		}
	case retyped:
		return Cluster{}, nil, problem.InField(problem.Invalid, "provider_config", "is missing: a new type needs its own")
	}
	if p.Namespace != nil && *p.Namespace != now.Namespace {
		if err := s.unused(ctx, now, "its namespace cannot change"); err != nil {
			return Cluster{}, nil, err
		}
	}
	// What was checked above must be what is changed: the config was read for this type.
	guard := revision
	if config != nil {
		guard = &now.Revision
	}
	c, err := s.store.UpdateCluster(ctx, id, guard, func(c *Cluster) error {
		p.apply(c, config)
		return nil
	})
	if err != nil {
		return Cluster{}, nil, refusal(now.Name, err)
	}
	return c, warnings, nil
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
		f.maxRuntime(*p.MaxRuntime)
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
		c.MaxRuntime = limit(*p.MaxRuntime)
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

// Delete removes a cluster that nothing lives on and that is not the default one.
func (s *Service) Delete(ctx context.Context, id string, revision *int64) error {
	c, err := s.store.Cluster(ctx, id)
	if err != nil {
		return err
	}
	if revision != nil && *revision != c.Revision {
		return refusal(c.Name, ErrStale)
	}
	def, err := s.store.DefaultCluster(ctx)
	if err != nil {
		return err
	}
	if def == id {
		return problem.New(problem.ClusterInUse, "cluster %q is the default cluster: set another one first", c.Name).With("default", true)
	}
	if err := s.unused(ctx, c, "it cannot be removed; cancel them or wait, and set active to false meanwhile"); err != nil {
		return err
	}
	if err := s.store.DeleteCluster(ctx, id); err != nil {
		return refusal(c.Name, err)
	}
	return nil
}

// unused refuses while attempts live on the cluster. It is a look beforehand for a good answer; the store decides.
func (s *Service) unused(ctx context.Context, c Cluster, what string) error {
	live, err := s.store.LiveCounts(ctx)
	if err != nil {
		return err
	}
	if n := live[c.ID]; n > 0 {
		return problem.New(problem.ClusterInUse, "cluster %q has live attempts (%d): %s", c.Name, n, what).With("live_attempts", n)
	}
	return nil
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

func limit(seconds int64) *int64 {
	if seconds == 0 {
		return nil
	}
	return &seconds
}

func orEmpty(config json.RawMessage) json.RawMessage {
	if len(config) == 0 {
		return json.RawMessage("{}")
	}
	return config
}

package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Store is what the service reads and writes.
type Store interface {
	// StorageBackends returns every backend, by name.
	StorageBackends(ctx context.Context) ([]Backend, error)
	// StorageBackend returns one by its id, or ErrNotFound.
	StorageBackend(ctx context.Context, id string) (Backend, error)
	CreateStorageBackend(ctx context.Context, b Backend) (Backend, error)
	// UpdateStorageBackend changes one row; with a revision only when the row still has it, else ErrStale. Neither bucket nor
	// prefix changes while projects use it: *InUse.
	UpdateStorageBackend(ctx context.Context, id string, revision *int64, change func(*Backend) error) (Backend, error)
	// DeleteStorageBackend removes one that no project uses, else *InUse.
	DeleteStorageBackend(ctx context.Context, id string, revision *int64) error
	// StorageProjects returns the number of projects that use each backend.
	StorageProjects(ctx context.Context) (map[string]int, error)
	// DefaultStorage returns the id of the default backend; empty: none is set.
	DefaultStorage(ctx context.Context) (string, error)
	// SetDefaultStorage sets it, or none; ErrNotFound when there is no such backend.
	SetDefaultStorage(ctx context.Context, id string) error
}

// Tester tries a backend with a real object.
type Tester interface {
	Test(ctx context.Context, b Backend) Report
}

// Options configure a Service; all are required but Logger.
type Options struct {
	Store  Store
	Tester Tester
	// Selectors returns the plugins that are asked for the storage of a new project, in their order.
	Selectors func() []Selector
	Logger    hclog.Logger
}

// Service is what admins do with storage backends. Who may do so is decided before. It is safe for concurrent use.
type Service struct {
	store     Store
	tester    Tester
	selectors func() []Selector
	log       hclog.Logger
}

// NewService returns a service.
func NewService(o Options) *Service {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	return &Service{store: o.Store, tester: o.Tester, selectors: o.Selectors, log: o.Logger}
}

// Patch are the fields to change; nil: not touched. The credentials are replaced whole.
type Patch struct {
	Name, Endpoint, Region, Bucket, Prefix *string
	PathStyle                              *bool
	Labels                                 *map[string]string
	Credentials                            *Credentials
}

// View is a backend with what is said beside it.
type View struct {
	Backend
	Default  bool
	Projects int // that use it
}

// List returns every backend, by name.
func (s *Service) List(ctx context.Context) ([]View, error) {
	all, err := s.store.StorageBackends(ctx)
	if err != nil {
		return nil, err
	}
	return s.view(ctx, all...)
}

func (s *Service) view(ctx context.Context, all ...Backend) ([]View, error) {
	counts, err := s.store.StorageProjects(ctx)
	if err != nil {
		return nil, err
	}
	def, err := s.store.DefaultStorage(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]View, len(all))
	for i, b := range all {
		out[i] = View{Backend: b, Default: b.ID == def, Projects: counts[b.ID]}
	}
	return out, nil
}

func (s *Service) one(ctx context.Context, b Backend) (View, error) {
	out, err := s.view(ctx, b)
	if err != nil {
		return View{}, err
	}
	return out[0], nil
}

// Find returns the backend of that id or else of that name; ErrNotFound when there is none.
func (s *Service) Find(ctx context.Context, ref string) (View, error) {
	all, err := s.store.StorageBackends(ctx)
	if err != nil {
		return View{}, err
	}
	for _, same := range []func(Backend) bool{
		func(b Backend) bool { return b.ID == ref },
		func(b Backend) bool { return b.Name == ref },
	} {
		for _, b := range all {
			if same(b) {
				return s.one(ctx, b)
			}
		}
	}
	return View{}, fmt.Errorf("%w: %q", ErrNotFound, ref)
}

// Named returns the id of the backend that a request names; an unknown one is the request's fault.
func (s *Service) Named(ctx context.Context, ref string) (string, error) {
	v, err := s.Find(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		return "", problem.InField(problem.UnknownStorage, "storage", "there is no storage backend %q", ref)
	}
	return v.ID, err
}

// Create adds a backend, which is tested first unless skipTest is true.
func (s *Service) Create(ctx context.Context, b Backend, skipTest bool) (View, []string, error) {
	if err := b.complete(); err != nil {
		return View{}, nil, err
	}
	warnings, err := s.try(ctx, b, skipTest)
	if err != nil {
		return View{}, nil, err
	}
	if b, err = s.store.CreateStorageBackend(ctx, b); err != nil {
		return View{}, nil, refusal(b.Name, err)
	}
	v, err := s.one(ctx, b)
	return v, warnings, err
}

// Update touches only what the patch has. The backend is tested when anything of its connection is sent, unless skipTest is
// true. Credentials go to no new endpoint by themselves: a new endpoint needs them anew.
func (s *Service) Update(ctx context.Context, id string, revision *int64, p Patch, skipTest bool) (View, []string, error) {
	now, err := s.store.StorageBackend(ctx, id)
	if err != nil {
		return View{}, nil, err
	}
	if revision != nil && *revision != now.Revision {
		return View{}, nil, refusal(now.Name, ErrStale)
	}
	next, err := p.on(now)
	if err != nil {
		return View{}, nil, err
	}
	guard := revision
	var warnings []string
	if p.connects() {
		guard = &now.Revision // what is tested here must be what is stored
		if warnings, err = s.try(ctx, next, skipTest); err != nil {
			return View{}, nil, err
		}
	}
	b, err := s.store.UpdateStorageBackend(ctx, id, guard, func(b *Backend) error {
		p.apply(b)
		b.Endpoint, b.Prefix = strings.TrimRight(b.Endpoint, "/"), strings.Trim(b.Prefix, "/")
		return nil
	})
	if err != nil {
		return View{}, nil, refusal(now.Name, err)
	}
	v, err := s.one(ctx, b)
	return v, warnings, err
}

// Delete removes a backend that no project uses and that is not the default.
func (s *Service) Delete(ctx context.Context, id string, revision *int64) error {
	b, err := s.store.StorageBackend(ctx, id)
	if err != nil {
		return err
	}
	def, err := s.store.DefaultStorage(ctx)
	if err != nil {
		return err
	}
	if def == id {
		return problem.New(problem.StorageInUse, "storage backend %q is the default: set another one, or none, first", b.Name).With("default", true)
	}
	if err := s.store.DeleteStorageBackend(ctx, id, revision); err != nil {
		return refusal(b.Name, err)
	}
	return nil
}

// Default returns the default backend; false: none is set.
func (s *Service) Default(ctx context.Context) (Backend, bool, error) {
	id, err := s.store.DefaultStorage(ctx)
	if err != nil || id == "" {
		return Backend{}, false, err
	}
	b, err := s.store.StorageBackend(ctx, id)
	if errors.Is(err, ErrNotFound) {
		return Backend{}, false, nil
	}
	return b, err == nil, err
}

// SetDefault sets the default backend by id or name; empty: none.
func (s *Service) SetDefault(ctx context.Context, ref string) error {
	id := ""
	if ref != "" {
		var err error
		if id, err = s.Named(ctx, ref); err != nil {
			return err
		}
	}
	return s.store.SetDefaultStorage(ctx, id)
}

// TestNew tests a backend that is not stored.
func (s *Service) TestNew(ctx context.Context, b Backend) (Report, error) {
	if b.Name == "" {
		b.Name = "new"
	}
	if err := b.complete(); err != nil {
		return Report{}, err
	}
	return s.test(ctx, b)
}

// TestStored tests a backend as it is stored, with the fields of the patch in place of the stored ones.
func (s *Service) TestStored(ctx context.Context, id string, p Patch) (Report, error) {
	b, err := s.store.StorageBackend(ctx, id)
	if err != nil {
		return Report{}, err
	}
	next, err := p.on(b)
	if err != nil {
		return Report{}, err
	}
	return s.test(ctx, next)
}

func (s *Service) test(ctx context.Context, b Backend) (Report, error) {
	r := s.tester.Test(ctx, b)
	return r, ctx.Err()
}

func (s *Service) try(ctx context.Context, b Backend, skip bool) (warnings []string, err error) {
	if strings.HasPrefix(b.Endpoint, "http://") {
		warnings = append(warnings, "the endpoint is plain http: data and signed requests travel unencrypted")
	}
	if skip {
		return append(warnings, "the connection was not tested"), nil
	}
	r, err := s.test(ctx, b)
	if err != nil {
		return nil, err
	}
	if !r.OK {
		return nil, problem.New(problem.ConnectionTestFailed, "%s", r.Message).With("report", r)
	}
	return warnings, nil
}

func (p Patch) connects() bool {
	return p.Endpoint != nil || p.Region != nil || p.Bucket != nil || p.Prefix != nil || p.PathStyle != nil || p.Credentials != nil
}

// on returns the backend with the patch on it, checked.
func (p Patch) on(b Backend) (Backend, error) {
	next := b
	p.apply(&next)
	if err := next.complete(); err != nil {
		return b, err
	}
	if next.Endpoint != b.Endpoint && p.Credentials == nil {
		return b, problem.InField(problem.Invalid, "credentials", "are missing: a new endpoint needs them anew, so that the stored ones are sent nowhere else")
	}
	return next, nil
}

func (p Patch) apply(b *Backend) {
	set(&b.Name, p.Name)
	set(&b.Endpoint, p.Endpoint)
	set(&b.Region, p.Region)
	set(&b.Bucket, p.Bucket)
	set(&b.Prefix, p.Prefix)
	set(&b.PathStyle, p.PathStyle)
	set(&b.Credentials, p.Credentials)
	if p.Labels != nil {
		b.Labels = maps.Clone(*p.Labels)
	}
}

func set[T any](dst, src *T) {
	if src != nil {
		*dst = *src
	}
}

func refusal(name string, err error) error {
	var used *InUse
	switch {
	case errors.As(err, &used):
		return problem.New(problem.StorageInUse, "%d projects keep their data at storage backend %q: it cannot be removed, and its bucket and prefix stay", used.Projects, name).
			With("projects", used.Projects)
	case errors.Is(err, ErrNameUsed):
		return problem.InField(problem.NameInUse, "name", "another storage backend has this name").Because(err)
	case errors.Is(err, ErrStale):
		return problem.New(problem.Stale, "storage backend %q was changed meanwhile: read it again", name).Because(err)
	}
	return err
}

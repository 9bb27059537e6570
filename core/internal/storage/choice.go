package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Selector is a plugin that may say where a new project keeps its data. Each call has a deadline of its own.
type Selector interface {
	// Name orders the chain, bytewise.
	Name() string
	// IgnoreErrors is the failure policy: true has the next one asked after an error.
	IgnoreErrors() bool
	// SelectStorage returns the answer, or an error, which is never an abstention.
	SelectStorage(ctx context.Context, u placement.User, p placement.Project, offered []Offer) (Answer, error)
}

// Offer is a backend as selectors see it.
type Offer struct {
	ID, Name, Type string
	Labels         map[string]string
	Default        bool
}

// Answer is what a selector says.
type Answer struct {
	Abstained bool
	BackendID string
	Reason    string
}

// Choose returns the id of the backend of a new project: the one that is asked for by id or name, else what the first
// selector with an opinion says, else the default; empty: none.
func (s *Service) Choose(ctx context.Context, ref string, u placement.User, p placement.Project) (string, error) {
	if ref != "" {
		return s.Named(ctx, ref)
	}
	all, err := s.store.StorageBackends(ctx)
	if err != nil || len(all) == 0 {
		return "", err
	}
	def, err := s.store.DefaultStorage(ctx)
	if err != nil {
		return "", err
	}
	offered := make([]Offer, len(all))
	for i, b := range all {
		offered[i] = Offer{ID: b.ID, Name: b.Name, Type: b.Type, Labels: b.Labels, Default: b.ID == def}
	}
	for _, sel := range s.selectors() {
		a, err := sel.SelectStorage(ctx, u, p, offered)
		if err == nil && !a.Abstained && !slices.ContainsFunc(offered, func(o Offer) bool { return o.ID == a.BackendID }) {
			err = fmt.Errorf("selector(%s): selected storage backend %q, which was not offered", sel.Name(), a.BackendID)
		}
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil && sel.IgnoreErrors():
			s.log.Warn("a selector cannot say where a new project keeps its data; the next one is asked", "plugin", sel.Name(), "project", p.Name, "error", err)
		case err != nil:
			return "", problem.New(problem.StorageUndecided,
				"selector %s must be asked where the project keeps its data, and cannot answer now; try again, or name a backend", sel.Name()).Because(err)
		case !a.Abstained:
			s.log.Info("a selector chose the storage of a new project", "plugin", sel.Name(), "project", p.Name, "backend", a.BackendID, "reason", a.Reason)
			return a.BackendID, nil
		}
	}
	return def, nil
}

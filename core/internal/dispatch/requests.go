package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// requestsFresh is how long a user or project is trusted: a burst of submissions mostly has one of each.
const requestsFresh = 2 * time.Second

// requests makes the questions that selectors are asked. Safe for concurrent use.
type requests struct {
	d        *Dispatcher
	users    memo[placement.User]
	projects memo[placement.Project]
}

func (r *requests) of(ctx context.Context, v process.Version, a process.Attempt) (placement.Request, error) {
	user, err := r.users.get(v.SubmittedBy, r.d.now(), func() (placement.User, error) {
		u, err := r.d.o.Store.User(ctx, v.SubmittedBy)
		return placement.User{ID: u.ID, Name: u.Name, Groups: u.Groups, Admin: u.Admin}, err
	})
	if err != nil {
		return placement.Request{}, fmt.Errorf("read user %s: %w", v.SubmittedBy, err)
	}
	owner, err := r.projects.get(v.ProjectID, r.d.now(), func() (placement.Project, error) {
		p, err := r.d.o.Store.Project(ctx, v.ProjectID)
		return placement.Project{ID: p.ID, Name: p.Name, Labels: p.Labels, HomeCluster: p.HomeCluster, Allowed: p.Allowed}, err
	})
	if err != nil {
		return placement.Request{}, fmt.Errorf("read project %s: %w", v.ProjectID, err)
	}
	return placement.Request{
		User: user, Project: owner, Version: v, AttemptNumber: a.Number,
		Process: process.Process{ID: v.ProcessID, ProjectID: v.ProjectID, Name: v.ProcessName, Type: v.ProcessType, Labels: v.ProcessLabels},
	}, nil
}

// memo keeps values for a short time. Two callers may read the same value at once; no lock is held meanwhile.
type memo[T any] struct {
	mu     sync.Mutex
	values map[string]remembered[T]
}

type remembered[T any] struct {
	value T
	until time.Time
}

func (m *memo[T]) get(id string, now time.Time, read func() (T, error)) (T, error) {
	m.mu.Lock()
	kept, found := m.values[id]
	m.mu.Unlock()
	if found && now.Before(kept.until) {
		return kept.value, nil
	}
	value, err := read()
	if err != nil {
		return value, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.values) > 1000 || m.values == nil {
		m.values = map[string]remembered[T]{}
	}
	m.values[id] = remembered[T]{value, now.Add(requestsFresh)}
	return value, nil
}

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/name"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
)

func (h *handlers) ListProjects(ctx context.Context, _ gen.ListProjectsRequestObject) (gen.ListProjectsResponseObject, error) {
	all, err := h.o.Store.Projects(ctx)
	if err != nil {
		return nil, err
	}
	seen := slices.DeleteFunc(all, func(p project.Project) bool { return visible(ctx, p) != nil })
	return gen.ListProjects200JSONResponse{Items: each(seen, toProject)}, nil
}

func (h *handlers) GetProject(ctx context.Context, r gen.GetProjectRequestObject) (gen.GetProjectResponseObject, error) {
	p, err := h.project(ctx, r.Project)
	if err != nil {
		return nil, err
	}
	return gen.GetProject200JSONResponse(toProject(p)), nil
}

func (h *handlers) CreateProject(ctx context.Context, r gen.CreateProjectRequestObject) (gen.CreateProjectResponseObject, error) {
	who, err := requireAdmin(ctx)
	if err != nil {
		return nil, err
	}
	if fault := name.Fault(string(r.Body.Name)); fault != "" {
		return nil, problem.InField(problem.Invalid, "name", "%s", fault)
	}
	p := project.Project{ID: uuid.Must(uuid.NewV7()).String(), Name: string(r.Body.Name), Labels: r.Body.Labels}
	if p.HomeCluster, err = h.clusterID(ctx, "home_cluster", r.Body.HomeCluster); err != nil {
		return nil, err
	}
	if r.Body.AllowedClusters != nil {
		if p.Allowed, err = h.clusterIDs(ctx, r.Body.AllowedClusters); err != nil {
			return nil, err
		}
	}
	if p.Members, err = h.userIDs(ctx, r.Body.Members); err != nil {
		return nil, err
	}
	switch {
	case r.Body.NoStorage && r.Body.Storage != "":
		return nil, problem.InField(problem.Invalid, "no_storage", "is true beside storage: send one of them")
	case !r.Body.NoStorage:
		if _, err := h.o.Store.ProjectByName(ctx, p.Name); err == nil { // no plugin is asked for nothing
			return nil, project.ErrNameUsed
		}
		if p.Storage, err = h.o.Storage.Choose(ctx, r.Body.Storage, asUser(who), asProject(p)); err != nil {
			return nil, err
		}
	}
	if p, err = h.o.Store.CreateProject(ctx, p); err != nil {
		return nil, err
	}
	return gen.CreateProject201JSONResponse(toProject(p)), nil
}

func (h *handlers) UpdateProject(ctx context.Context, r gen.UpdateProjectRequestObject) (gen.UpdateProjectResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	p, err := h.project(ctx, r.Project)
	if err != nil {
		return nil, err
	}
	var changes []func(*project.Project)
	set := func(f func(*project.Project)) { changes = append(changes, f) }
	b := r.Body
	if b.Name != nil {
		if fault := name.Fault(*b.Name); fault != "" {
			return nil, problem.InField(problem.Invalid, "name", "%s", fault)
		}
		set(func(p *project.Project) { p.Name = *b.Name })
	}
	if b.Labels != nil {
		set(func(p *project.Project) { p.Labels = maps.Clone(*b.Labels) })
	}
	if b.HomeCluster != nil {
		id, err := h.clusterID(ctx, "home_cluster", *b.HomeCluster)
		if err != nil {
			return nil, err
		}
		set(func(p *project.Project) { p.HomeCluster = id })
	}
	allowAll := b.AllowAllClusters != nil && *b.AllowAllClusters
	switch {
	case b.AllowedClusters != nil && allowAll:
		return nil, problem.InField(problem.Invalid, "allow_all_clusters", "is true beside allowed_clusters: send one of them")
	case b.AllowedClusters != nil:
		ids, err := h.clusterIDs(ctx, *b.AllowedClusters)
		if err != nil {
			return nil, err
		}
		set(func(p *project.Project) { p.Allowed = slices.Clone(ids) })
	case allowAll:
		set(func(p *project.Project) { p.Allowed = nil })
	}
	if b.Members != nil {
		ids, err := h.userIDs(ctx, *b.Members)
		if err != nil {
			return nil, err
		}
		set(func(p *project.Project) { p.Members = slices.Clone(ids) })
	}
	if b.Storage != nil {
		id := ""
		if *b.Storage != "" {
			if id, err = h.o.Storage.Named(ctx, *b.Storage); err != nil {
				return nil, err
			}
		}
		set(func(p *project.Project) { p.Storage = id })
	}
	p, err = h.o.Store.UpdateProject(ctx, p.ID, nil, func(p *project.Project) error {
		for _, change := range changes {
			change(p)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gen.UpdateProject200JSONResponse(toProject(p)), nil
}

func (h *handlers) clusterID(ctx context.Context, field, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	c, err := h.o.Clusters.Find(ctx, ref)
	if errors.Is(err, cluster.ErrNotFound) {
		return "", problem.InField(problem.UnknownCluster, field, "there is no cluster %q", ref)
	}
	return c.ID, err
}

func (h *handlers) clusterIDs(ctx context.Context, refs []string) ([]string, error) {
	ids := []string{}
	for i, ref := range refs {
		id, err := h.clusterID(ctx, fmt.Sprintf("allowed_clusters[%d]", i), ref)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func (h *handlers) userIDs(ctx context.Context, refs []string) ([]string, error) {
	var ids []string
	for i, ref := range refs {
		u, err := h.user(ctx, ref)
		if errors.Is(err, auth.ErrNotFound) {
			return nil, problem.InField(problem.Invalid, fmt.Sprintf("members[%d]", i), "there is no user %q", ref)
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, u.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

func (h *handlers) ListChoices(ctx context.Context, r gen.ListChoicesRequestObject) (gen.ListChoicesResponseObject, error) {
	p, err := h.project(ctx, r.Project)
	if err != nil {
		return nil, err
	}
	choices, err := h.o.Placement.Choices(ctx, asUser(caller(ctx)), asProject(p))
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		h.log.Info("choices cannot be told now", "request_id", requestid.From(ctx), "project", p.Name, "error", err)
		return nil, problem.New(problem.ChoicesUnavailable, "a selector that must be asked cannot answer now; try again, and see `nagelfluh plugins list`")
	}
	return gen.ListChoices200JSONResponse{Items: each(choices, toCandidate)}, nil
}

func asProject(p project.Project) placement.Project {
	return placement.Project{ID: p.ID, Name: p.Name, Labels: p.Labels, HomeCluster: p.HomeCluster, Allowed: p.Allowed}
}

package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
)

// requireAdmin is the one place where admins are told from others.
func requireAdmin(ctx context.Context) (auth.Principal, error) {
	p, ok := auth.From(ctx)
	if !ok || !p.Admin {
		return p, problem.New(problem.Forbidden, "only admins may do this")
	}
	return p, nil
}

func caller(ctx context.Context) auth.Principal {
	p, _ := auth.From(ctx)
	return p
}

func asUser(p auth.Principal) placement.User {
	return placement.User{ID: p.UserID, Name: p.Name, Groups: p.Groups, Admin: p.Admin}
}

// project returns a project by id or name when the caller may see it; else it is not found.
func (s *Server) project(ctx context.Context, ref string) (project.Project, error) {
	p, err := s.o.Store.ProjectByName(ctx, ref)
	if errors.Is(err, project.ErrNotFound) {
		p, err = s.o.Store.Project(ctx, ref)
	}
	if err != nil {
		return project.Project{}, err
	}
	return p, visible(ctx, p)
}

func visible(ctx context.Context, p project.Project) error {
	if who := caller(ctx); !who.Admin && !slices.Contains(p.Members, who.UserID) {
		return project.ErrNotFound
	}
	return nil
}

func (s *Server) seesProject(ctx context.Context, id string) error {
	if caller(ctx).Admin {
		return nil
	}
	p, err := s.o.Store.Project(ctx, id)
	if err != nil {
		return err
	}
	return visible(ctx, p)
}

// stillSees says whether the key of a request that has been let in is still good, and whether its user still sees the
// project; empty: none in particular. A database that cannot be read now takes nobody's right away.
func (s *Server) stillSees(r *http.Request, projectID string) bool {
	p, err := s.principal(r)
	if err != nil {
		return !errors.Is(err, auth.ErrUnauthenticated)
	}
	if projectID == "" {
		return true
	}
	return !errors.Is(s.seesProject(auth.With(r.Context(), p), projectID), project.ErrNotFound)
}

// version returns a version when the caller may see its project.
func (s *Server) version(ctx context.Context, id string) (process.Version, error) {
	v, err := s.o.Store.Version(ctx, id)
	if err != nil {
		return v, err
	}
	return v, s.seesProject(ctx, v.ProjectID)
}

// user returns a user by id or name.
func (s *Server) user(ctx context.Context, ref string) (auth.User, error) {
	u, err := s.o.Store.UserByName(ctx, ref)
	if errors.Is(err, auth.ErrNotFound) {
		u, err = s.o.Store.User(ctx, ref)
	}
	return u, err
}

func (h *handlers) WhoAmI(ctx context.Context, _ gen.WhoAmIRequestObject) (gen.WhoAmIResponseObject, error) {
	p := caller(ctx)
	return gen.WhoAmI200JSONResponse{ID: p.UserID, Name: p.Name, Groups: p.Groups, Admin: p.Admin}, nil
}

func (h *handlers) ListUsers(ctx context.Context, _ gen.ListUsersRequestObject) (gen.ListUsersResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	all, err := h.o.Store.Users(ctx)
	if err != nil {
		return nil, err
	}
	return gen.ListUsers200JSONResponse{Items: each(all, toUser)}, nil
}

func (h *handlers) CreateUser(ctx context.Context, r gen.CreateUserRequestObject) (gen.CreateUserResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	u, err := h.o.Store.CreateUser(ctx, auth.User{Name: string(r.Body.Name), Groups: r.Body.Groups, Admin: r.Body.Admin})
	if err != nil {
		return nil, err
	}
	return gen.CreateUser201JSONResponse(toUser(u)), nil
}

func (h *handlers) ListAPIKeys(ctx context.Context, _ gen.ListAPIKeysRequestObject) (gen.ListAPIKeysResponseObject, error) {
	who, of := caller(ctx), ""
	if !who.Admin {
		of = who.UserID
	}
	keys, err := h.o.Store.APIKeys(ctx, of)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(keys, func(a, b auth.APIKey) int { return cmp.Compare(a.ID, b.ID) })
	return gen.ListAPIKeys200JSONResponse{Items: each(keys, toAPIKey)}, nil
}

func (h *handlers) CreateAPIKey(ctx context.Context, r gen.CreateAPIKeyRequestObject) (gen.CreateAPIKeyResponseObject, error) {
	who := caller(ctx)
	owner := who.UserID
	if r.Body.User != "" && r.Body.User != who.UserID && r.Body.User != who.Name {
		if _, err := requireAdmin(ctx); err != nil {
			return nil, err
		}
		u, err := h.user(ctx, r.Body.User)
		if errors.Is(err, auth.ErrNotFound) {
			return nil, problem.InField(problem.Invalid, "user", "there is no user %q", r.Body.User)
		}
		if err != nil {
			return nil, err
		}
		owner = u.ID
	}
	var expires *time.Time
	if at := r.Body.ExpiresAt; !at.IsZero() {
		if !at.After(time.Now()) {
			return nil, problem.InField(problem.Invalid, "expires_at", "is not in the future")
		}
		at = at.UTC().Truncate(time.Microsecond)
		expires = &at
	}
	key, row, err := h.o.Auth.Issue(ctx, owner, r.Body.Name, expires)
	if err != nil {
		return nil, err
	}
	return gen.CreateAPIKey201JSONResponse{Key: key, APIKey: toAPIKey(row)}, nil
}

func (h *handlers) RevokeAPIKey(ctx context.Context, r gen.RevokeAPIKeyRequestObject) (gen.RevokeAPIKeyResponseObject, error) {
	who, of := caller(ctx), ""
	if !who.Admin {
		of = who.UserID
	}
	keys, err := h.o.Store.APIKeys(ctx, of)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(keys, func(k auth.APIKey) bool { return k.ID == r.Key || k.Prefix == r.Key })
	if i < 0 {
		return nil, auth.ErrNotFound
	}
	if err := h.o.Store.RevokeAPIKey(ctx, keys[i].ID, time.Now().UTC().Truncate(time.Microsecond)); err != nil {
		return nil, err
	}
	h.o.Auth.Forget()
	return gen.RevokeAPIKey204Response{}, nil
}

// each converts a list; the result is never nil, so that JSON shows an empty list.
func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}

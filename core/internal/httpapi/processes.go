package httpapi

import (
	"context"
	"errors"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

const defaultPage = 50

func (h *handlers) SubmitProcess(ctx context.Context, r gen.SubmitProcessRequestObject) (gen.SubmitProcessResponseObject, error) {
	p, err := h.project(ctx, r.Project)
	if err != nil {
		return nil, err
	}
	sub := fromSubmission(*r.Body)
	switch key := given(r.Params.IdempotencyKey); {
	case key != "" && sub.Key != "" && sub.Key != key:
		return nil, problem.InField(problem.Invalid, "key", "differs from the header Idempotency-Key: send one of them")
	case key != "":
		sub.Key = key
	}
	results, err := h.o.Processes.Submit(ctx, caller(ctx).UserID, p.ID, []process.Submission{sub}, false)
	if err != nil {
		return nil, err
	}
	h.accepted(ctx, results)
	v := h.namer(ctx).version(results[0].Version)
	if results[0].Existed {
		return gen.SubmitProcess200JSONResponse(v), nil
	}
	return gen.SubmitProcess201JSONResponse(v), nil
}

func (h *handlers) SubmitBulk(ctx context.Context, r gen.SubmitBulkRequestObject) (gen.SubmitBulkResponseObject, error) {
	p, err := h.project(ctx, r.Project)
	if err != nil {
		return nil, err
	}
	results, err := h.o.Processes.Submit(ctx, caller(ctx).UserID, p.ID, each(r.Body.Items, fromSubmission), true)
	if err != nil {
		return nil, err
	}
	h.accepted(ctx, results)
	names := h.namer(ctx)
	return gen.SubmitBulk201JSONResponse{Items: each(results, func(res process.Result) gen.BulkItem {
		return gen.BulkItem{Version: names.version(res.Version), Existed: res.Existed}
	})}, nil
}

// accepted ties the request to the ids under which dispatch, plugins and clusters log what follows.
func (h *handlers) accepted(ctx context.Context, results []process.Result) {
	if !h.log.IsDebug() {
		return
	}
	for _, r := range results {
		h.log.Debug("accepted", "request_id", requestid.From(ctx), "version", r.Version.ID, "attempt", r.Version.Attempt.ID, "existed", r.Existed)
	}
}

func (h *handlers) DryRun(ctx context.Context, r gen.DryRunRequestObject) (gen.DryRunResponseObject, error) {
	p, err := h.project(ctx, r.Project)
	if err != nil {
		return nil, err
	}
	who := caller(ctx)
	proc, v, err := h.o.Processes.Check(ctx, who.UserID, p.ID, fromSubmission(*r.Body))
	if err != nil {
		return nil, err
	}
	d, err := h.o.Placement.Decide(ctx, "", placement.Request{
		User: asUser(who), Project: asProject(p), Process: proc, Version: v, AttemptNumber: 1, DryRun: true,
	})
	if err != nil {
		return nil, err
	}
	return gen.DryRun200JSONResponse(h.namer(ctx).decision(d)), nil
}

func (h *handlers) ListProcesses(ctx context.Context, r gen.ListProcessesRequestObject) (gen.ListProcessesResponseObject, error) {
	p, err := h.project(ctx, r.Params.Project)
	if err != nil {
		return nil, err
	}
	page, next, err := h.o.Store.Processes(ctx, p.ID, given(r.Params.Cursor), pageSize(given(r.Params.Limit)))
	if err != nil {
		return nil, err
	}
	return gen.ListProcesses200JSONResponse{Items: each(page, toProcess), NextCursor: next}, nil
}

func (h *handlers) GetProcess(ctx context.Context, r gen.GetProcessRequestObject) (gen.GetProcessResponseObject, error) {
	p, err := h.o.Store.Process(ctx, r.Process)
	if err != nil {
		return nil, err
	}
	if err := h.seesProject(ctx, p.ProjectID); err != nil {
		return nil, err
	}
	return gen.GetProcess200JSONResponse(toProcess(p)), nil
}

func (h *handlers) ListVersions(ctx context.Context, r gen.ListVersionsRequestObject) (gen.ListVersionsResponseObject, error) {
	q := r.Params
	projectRef, processRef, clusterRef := given(q.Project), given(q.Process), given(q.Cluster)
	f := store.VersionFilter{State: process.State(given(q.State)), Cursor: given(q.Cursor), Limit: pageSize(given(q.Limit))}
	switch {
	case projectRef != "":
		p, err := h.project(ctx, projectRef)
		if err != nil {
			return nil, err
		}
		f.ProjectID = p.ID
	case !caller(ctx).Admin && processRef == "":
		return nil, problem.InField(problem.BadParameter, "project", "is missing: only admins list the versions of all projects")
	}
	if processRef != "" {
		p, err := h.processByRef(ctx, f.ProjectID, processRef)
		if err != nil {
			return nil, err
		}
		f.ProcessID = p.ID
	}
	if clusterRef != "" {
		c, err := h.o.Clusters.Find(ctx, clusterRef)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil, problem.InField(problem.UnknownCluster, "cluster", "there is no cluster %q", clusterRef)
		}
		if err != nil {
			return nil, err
		}
		f.ClusterID = c.ID
	}
	page, next, err := h.o.Store.Versions(ctx, f)
	if err != nil {
		return nil, err
	}
	return gen.ListVersions200JSONResponse{Items: each(page, h.namer(ctx).version), NextCursor: next}, nil
}

// processByRef returns a process by its name in a project, or by its id.
func (h *handlers) processByRef(ctx context.Context, projectID, ref string) (process.Process, error) {
	if projectID != "" {
		p, err := h.o.Store.ProcessByName(ctx, projectID, ref)
		if err == nil || !errors.Is(err, process.ErrNotFound) {
			return p, err
		}
	}
	p, err := h.o.Store.Process(ctx, ref)
	if err != nil {
		return p, err
	}
	if projectID != "" && p.ProjectID != projectID {
		return p, process.ErrNotFound
	}
	return p, h.seesProject(ctx, p.ProjectID)
}

func pageSize(limit int32) int {
	if limit == 0 {
		return defaultPage
	}
	return int(limit)
}

func (h *handlers) GetVersion(ctx context.Context, r gen.GetVersionRequestObject) (gen.GetVersionResponseObject, error) {
	v, err := h.version(ctx, r.Version)
	if err != nil {
		return nil, err
	}
	return gen.GetVersion200JSONResponse(h.namer(ctx).version(v)), nil
}

func (h *handlers) ExplainVersion(ctx context.Context, r gen.ExplainVersionRequestObject) (gen.ExplainVersionResponseObject, error) {
	v, err := h.version(ctx, r.Version)
	if err != nil {
		return nil, err
	}
	attempts, err := h.o.Store.Attempts(ctx, v.ID)
	if err != nil {
		return nil, err
	}
	names := h.namer(ctx)
	out := gen.Explanation{Version: names.version(v), Attempts: []gen.AttemptExplanation{}}
	for _, a := range attempts {
		decisions, err := h.o.Store.Decisions(ctx, a.ID)
		if err != nil {
			return nil, err
		}
		out.Attempts = append(out.Attempts, gen.AttemptExplanation{Attempt: names.attempt(a), Decisions: each(decisions, names.decision)})
	}
	return gen.ExplainVersion200JSONResponse(out), nil
}

func (h *handlers) CancelVersion(ctx context.Context, r gen.CancelVersionRequestObject) (gen.CancelVersionResponseObject, error) {
	if _, err := h.version(ctx, r.Version); err != nil {
		return nil, err
	}
	v, err := h.o.Processes.Cancel(ctx, caller(ctx).UserID, r.Version)
	if err != nil {
		return nil, err
	}
	return gen.CancelVersion200JSONResponse(h.namer(ctx).version(v)), nil
}

// given returns what an optional parameter holds; the zero value when it was not sent.
func given[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

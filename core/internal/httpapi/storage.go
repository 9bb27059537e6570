package httpapi

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

func (h *handlers) ListStorageBackends(ctx context.Context, _ gen.ListStorageBackendsRequestObject) (gen.ListStorageBackendsResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	all, err := h.o.Storage.List(ctx)
	if err != nil {
		return nil, err
	}
	return gen.ListStorageBackends200JSONResponse{Items: each(all, toStorage)}, nil
}

func (h *handlers) GetStorageBackend(ctx context.Context, r gen.GetStorageBackendRequestObject) (gen.GetStorageBackendResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	b, err := h.o.Storage.Find(ctx, r.Backend)
	if err != nil {
		return nil, err
	}
	return gen.GetStorageBackend200JSONResponse{Body: toStorage(b), Headers: gen.GetStorageBackend200ResponseHeaders{ETag: storageTag(b)}}, nil
}

func (h *handlers) CreateStorageBackend(ctx context.Context, r gen.CreateStorageBackendRequestObject) (gen.CreateStorageBackendResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	in := r.Body
	b, warnings, err := h.o.Storage.Create(ctx, storage.Backend{
		Name: string(in.Name), Type: string(in.Type), Endpoint: in.Endpoint, Region: in.Region, Bucket: in.Bucket, Prefix: in.Prefix,
		PathStyle: in.PathStyle, Labels: in.Labels, Credentials: fromCredentials(in.Credentials),
	}, given(r.Params.ConnectionTest) == gen.CreateStorageBackendParamsConnectionTestSkip)
	if err != nil {
		return nil, err
	}
	out := toStorage(b)
	out.Warnings = warnings
	return gen.CreateStorageBackend201JSONResponse{Body: out, Headers: gen.CreateStorageBackend201ResponseHeaders{ETag: storageTag(b)}}, nil
}

func (h *handlers) UpdateStorageBackend(ctx context.Context, r gen.UpdateStorageBackendRequestObject) (gen.UpdateStorageBackendResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	b, revision, err := h.matchedStorage(ctx, r.Backend, given(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	in := r.Body
	p := storage.Patch{Name: in.Name, Endpoint: in.Endpoint, Region: in.Region, Bucket: in.Bucket, Prefix: in.Prefix, PathStyle: in.PathStyle, Labels: in.Labels}
	p.Credentials = credentialsPatch(in.Credentials)
	b, warnings, err := h.o.Storage.Update(ctx, b.ID, revision, p, given(r.Params.ConnectionTest) == gen.UpdateStorageBackendParamsConnectionTestSkip)
	if err != nil {
		return nil, err
	}
	out := toStorage(b)
	out.Warnings = warnings
	return gen.UpdateStorageBackend200JSONResponse{Body: out, Headers: gen.UpdateStorageBackend200ResponseHeaders{ETag: storageTag(b)}}, nil
}

func (h *handlers) DeleteStorageBackend(ctx context.Context, r gen.DeleteStorageBackendRequestObject) (gen.DeleteStorageBackendResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	b, revision, err := h.matchedStorage(ctx, r.Backend, given(r.Params.IfMatch))
	if err != nil {
		return nil, err
	}
	if err := h.o.Storage.Delete(ctx, b.ID, revision); err != nil {
		return nil, err
	}
	return gen.DeleteStorageBackend204Response{}, nil
}

func (h *handlers) TestStorage(ctx context.Context, r gen.TestStorageRequestObject) (gen.TestStorageResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	in := r.Body
	report, err := h.o.Storage.TestNew(ctx, storage.Backend{
		Endpoint: in.Endpoint, Region: in.Region, Bucket: in.Bucket, Prefix: in.Prefix, PathStyle: in.PathStyle, Credentials: fromCredentials(in.Credentials),
	})
	if err != nil {
		return nil, err
	}
	return gen.TestStorage200JSONResponse(toStorageReport(report)), nil
}

func (h *handlers) TestStorageBackend(ctx context.Context, r gen.TestStorageBackendRequestObject) (gen.TestStorageBackendResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	b, err := h.o.Storage.Find(ctx, r.Backend)
	if err != nil {
		return nil, err
	}
	in := r.Body
	report, err := h.o.Storage.TestStored(ctx, b.ID, storage.Patch{
		Endpoint: in.Endpoint, Region: in.Region, Bucket: in.Bucket, Prefix: in.Prefix, PathStyle: in.PathStyle, Credentials: credentialsPatch(in.Credentials),
	})
	if err != nil {
		return nil, err
	}
	return gen.TestStorageBackend200JSONResponse(toStorageReport(report)), nil
}

func (h *handlers) GetDefaultStorage(ctx context.Context, _ gen.GetDefaultStorageRequestObject) (gen.GetDefaultStorageResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	b, _, err := h.o.Storage.Default(ctx)
	return gen.GetDefaultStorage200JSONResponse{StorageID: b.ID, StorageName: b.Name}, err
}

func (h *handlers) SetDefaultStorage(ctx context.Context, r gen.SetDefaultStorageRequestObject) (gen.SetDefaultStorageResponseObject, error) {
	if _, err := requireAdmin(ctx); err != nil {
		return nil, err
	}
	if err := h.o.Storage.SetDefault(ctx, r.Body.Storage); err != nil {
		return nil, err
	}
	b, _, err := h.o.Storage.Default(ctx)
	return gen.SetDefaultStorage200JSONResponse{StorageID: b.ID, StorageName: b.Name}, err
}

// matchedStorage returns the backend and the revision that If-Match demands; nil: any.
func (h *handlers) matchedStorage(ctx context.Context, ref, ifMatch string) (storage.View, *int64, error) {
	b, err := h.o.Storage.Find(ctx, ref)
	if err != nil || ifMatch == "" || ifMatch == "*" {
		return b, nil, err
	}
	n, err := strconv.ParseInt(strings.Trim(ifMatch, `"`), 10, 64)
	if err != nil { // an ETag that was never given matches nothing
		return b, nil, problem.New(problem.Stale, "If-Match %s is no ETag of storage backend %q: read it again", ifMatch, b.Name)
	}
	return b, &n, nil
}

func storageTag(b storage.View) string { return fmt.Sprintf("%q", strconv.FormatInt(b.Revision, 10)) }

func fromCredentials(c gen.StorageCredentials) storage.Credentials {
	return storage.Credentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken}
}

func credentialsPatch(c *gen.StorageCredentials) *storage.Credentials {
	if c == nil {
		return nil
	}
	out := fromCredentials(*c)
	return &out
}

func toStorage(b storage.View) gen.StorageBackend {
	return gen.StorageBackend{
		ID: b.ID, Name: b.Name, Type: gen.StorageBackendType(b.Type), Endpoint: b.Endpoint, Region: b.Region, Bucket: b.Bucket, Prefix: b.Prefix,
		PathStyle: b.PathStyle, Labels: b.Labels, HasCredentials: b.Credentials != storage.Credentials{}, Default: b.Default,
		Projects: int32(b.Projects), Revision: b.Revision, CreatedAt: b.CreatedAt, UpdatedAt: b.UpdatedAt,
	}
}

func toStorageReport(r storage.Report) gen.StorageReport {
	return gen.StorageReport{
		Ok: r.OK, Class: gen.StorageReportClass(r.Class), Step: gen.StorageReportStep(r.Step), Message: r.Message, TestedAt: r.TestedAt, TookMs: r.TookMS,
	}
}

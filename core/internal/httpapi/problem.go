package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/replica"
	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// Statuses gives every code of the API its HTTP status.
var Statuses = map[problem.Code]int{
	problem.MalformedJSON:        http.StatusBadRequest,
	problem.BadParameter:         http.StatusBadRequest,
	problem.Unauthenticated:      http.StatusUnauthorized,
	problem.Forbidden:            http.StatusForbidden,
	problem.NotFound:             http.StatusNotFound,
	problem.RouteNotFound:        http.StatusNotFound,
	problem.MethodNotAllowed:     http.StatusMethodNotAllowed,
	problem.NameInUse:            http.StatusConflict,
	problem.ClusterInUse:         http.StatusConflict,
	problem.StorageInUse:         http.StatusConflict,
	problem.IdentityChanged:      http.StatusConflict,
	problem.IdentityInUse:        http.StatusConflict,
	problem.Stale:                http.StatusPreconditionFailed,
	problem.TooLarge:             http.StatusRequestEntityTooLarge,
	problem.UnsupportedMedia:     http.StatusUnsupportedMediaType,
	problem.Invalid:              http.StatusUnprocessableEntity,
	problem.UnknownCluster:       http.StatusUnprocessableEntity,
	problem.UnknownClusterType:   http.StatusUnprocessableEntity,
	problem.UnknownStorage:       http.StatusUnprocessableEntity,
	problem.ConnectionTestFailed: http.StatusUnprocessableEntity,
	problem.IdempotencyKeyReused: http.StatusUnprocessableEntity,
	problem.Internal:             http.StatusInternalServerError,
	problem.ProviderUnavailable:  http.StatusServiceUnavailable,
	problem.ChoicesUnavailable:   http.StatusServiceUnavailable,
	problem.StorageUndecided:     http.StatusServiceUnavailable,
	problem.LogsUnavailable:      http.StatusServiceUnavailable,
	problem.NoLeader:             http.StatusServiceUnavailable,
	problem.Timeout:              http.StatusServiceUnavailable,
}

// refusal is the one place where errors become answers: what is not known here is an internal error, whose text stays in
// the log.
func refusal(err error) *problem.Error {
	var p *problem.Error
	var tooLarge *http.MaxBytesError
	var route *echo.HTTPError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &tooLarge):
		return problem.New(problem.TooLarge, "the request body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(err, process.ErrNotFound), errors.Is(err, auth.ErrNotFound), errors.Is(err, project.ErrNotFound), errors.Is(err, cluster.ErrNotFound), errors.Is(err, storage.ErrNotFound):
		return problem.New(problem.NotFound, "there is no such thing, or you may not see it").Because(err)
	case errors.Is(err, auth.ErrNameUsed), errors.Is(err, project.ErrNameUsed):
		return problem.InField(problem.NameInUse, "name", "is in use").Because(err)
	case errors.Is(err, project.ErrStale), errors.Is(err, process.ErrStale):
		return problem.New(problem.Stale, "it was changed meanwhile: read it again").Because(err)
	case errors.Is(err, store.ErrNotLeader), errors.Is(err, replica.ErrNoLeader):
		return problem.New(problem.NoLeader, "another server is taking over the work just now; try again").Because(err)
	case errors.Is(err, auth.ErrUnauthenticated):
		return problem.New(problem.Unauthenticated, "%s", auth.ErrUnauthenticated)
	case errors.Is(err, context.DeadlineExceeded):
		return problem.New(problem.Timeout, "the server did not manage it in time; try again").Because(err)
	case errors.As(err, &route):
		return routing(route)
	}
	return problem.New(problem.Internal, "something went wrong in the server; its log has the request id").Because(err)
}

// routing translates what the router and the binder of Echo say.
func routing(e *echo.HTTPError) *problem.Error {
	switch e.Code {
	case http.StatusNotFound:
		return problem.New(problem.RouteNotFound, "there is no such route; /docs lists them")
	case http.StatusMethodNotAllowed:
		return problem.New(problem.MethodNotAllowed, "this route does not take that method")
	case http.StatusUnsupportedMediaType:
		return problem.New(problem.UnsupportedMedia, "send the body as application/json")
	case http.StatusRequestEntityTooLarge:
		return problem.New(problem.TooLarge, "the request body is too large")
	}
	if e.Code >= 500 {
		return problem.New(problem.Internal, "something went wrong in the server; its log has the request id").Because(e)
	}
	return problem.New(problem.BadParameter, "the request cannot be read").Because(e)
}

// fail answers with an error. It is Echo's error handler, and streams use it before their first byte.
func (s *Server) fail(err error, c echo.Context) {
	ctx := c.Request().Context()
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return // the client is gone
	}
	p := refusal(err)
	status, known := Statuses[p.Code]
	if !known {
		status = http.StatusInternalServerError
	}
	id := requestid.From(ctx)
	switch {
	case p.Code == problem.Internal:
		s.log.Error("request failed", "request_id", id, "method", c.Request().Method, "route", c.Path(), "error", err)
	case status >= 500 && p.Err != nil:
		s.log.Warn("request cannot be served now", "request_id", id, "method", c.Request().Method, "route", c.Path(), "code", p.Code, "error", err)
	default:
		s.log.Debug("request refused", "request_id", id, "method", c.Request().Method, "route", c.Path(), "code", p.Code)
	}
	if c.Response().Committed {
		return
	}
	body := gen.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: int32(status), Code: string(p.Code), Detail: p.Detail,
		Details: p.Details, RequestID: id,
	}
	for _, f := range p.Fields {
		body.Errors = append(body.Errors, gen.FieldError{Field: f.Field, Message: f.Message})
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, "application/problem+json")
	h.Del("ETag")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="nagelfluh"`)
	}
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	c.Response().WriteHeader(status)
	if c.Request().Method != http.MethodHead {
		_ = json.NewEncoder(c.Response()).Encode(body) // the client may be gone; nobody else is interested
	}
}

// fieldPath writes a JSON pointer the way the contract names fields: items[3].spec.limits[nvidia.com/gpu].
func fieldPath(parts []string) string {
	var b strings.Builder
	for _, p := range parts {
		switch {
		case p == "":
		case isNumber(p), strings.ContainsAny(p, "./[] "):
			b.WriteString("[" + p + "]")
		case b.Len() == 0:
			b.WriteString(p)
		default:
			b.WriteString("." + p)
		}
	}
	return b.String()
}

func isNumber(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return s != ""
}

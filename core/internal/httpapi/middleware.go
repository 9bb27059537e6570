package httpapi

import (
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
)

const headerRequestID = "X-Request-Id"

var goodRequestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// identify gives the request an id, or keeps the one that a proxy gave.
func (s *Server) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(headerRequestID)
		if !goodRequestID.MatchString(id) {
			id = uuid.Must(uuid.NewV7()).String()
		}
		c.Response().Header().Set(headerRequestID, id)
		c.SetRequest(c.Request().WithContext(requestid.With(c.Request().Context(), id)))
		return next(c)
	}
}

// observe logs and counts the request. It answers with the error itself, so that it sees the status.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		if err := next(c); err != nil {
			c.Error(err)
		}
		took, status, route := time.Since(began), c.Response().Status, c.Path()
		if route == "" || status == http.StatusNotFound && !strings.Contains(route, ":") {
			route = "unmatched"
		}
		s.o.Metrics.Request(c.Request().Method, route, status, took)
		if s.log.IsDebug() {
			s.log.Debug("request", "request_id", requestid.From(c.Request().Context()), "method", c.Request().Method,
				"route", c.Path(), "status", status, "took", took.Round(time.Microsecond), "bytes", c.Response().Size)
		}
		return nil
	}
}

// recovered turns a panic of a handler into an internal error.
func (s *Server) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			switch r := recover(); r {
			case nil:
			case http.ErrAbortHandler:
				panic(r)
			default:
				err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		return next(c)
	}
}

// guarded stands before every route of the contract: it caps the body, finds out who calls, and holds the request against
// the contract. What is no such route passes, and the router says so.
func (s *Server) guarded(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		route, params := s.route(c)
		if route == nil {
			return next(c)
		}
		if err := bound(c); err != nil {
			return err
		}
		p, err := s.principal(c.Request())
		if err != nil {
			return err
		}
		c.SetRequest(c.Request().WithContext(auth.With(c.Request().Context(), p)))
		if forLeader(c) {
			if done, err := s.passOn(c); done || err != nil {
				return err
			}
		}
		if route.Operation.RequestBody != nil {
			// Not every writer has deadlines; in the server each does.
			rc := http.NewResponseController(c.Response().Writer)
			_ = rc.SetReadDeadline(time.Now().Add(bodyLimit))
			defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
		}
		if err := validate(c.Request(), route, params); err != nil {
			return err
		}
		return next(c)
	}
}

// bodyLimit is how long a client may take to send its body.
const bodyLimit = time.Minute

// bound caps the body before anything reads it.
func bound(c echo.Context) error {
	limit := int64(MaxBody)
	if strings.HasSuffix(c.Path(), "/processes/bulk") {
		limit = MaxBulkBody
	}
	r := c.Request()
	if r.ContentLength > limit {
		// The rest is not read: the connection is of no further use.
		c.Response().Header().Set("Connection", "close")
		return problem.New(problem.TooLarge, "the request body has %d bytes; at most %d are taken", r.ContentLength, limit)
	}
	r.Body = http.MaxBytesReader(c.Response().Writer, r.Body, limit)
	return nil
}

func (s *Server) principal(r *http.Request) (auth.Principal, error) {
	kind, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(kind, "Bearer") {
		return auth.Principal{}, auth.ErrUnauthenticated
	}
	return s.o.Auth.Authenticate(r.Context(), strings.TrimSpace(key))
}

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
)

// streamLogs serves one attempt's log, as events or as text.
func (s *Server) streamLogs(c echo.Context) error {
	r := c.Request()
	v, err := s.version(r.Context(), c.Param("version"))
	if err != nil {
		return err
	}
	events := strings.Contains(r.Header.Get("Accept"), "text/event-stream")
	o, err := logOptions(c, events)
	if err != nil {
		return err
	}
	if o.After.End {
		return c.NoContent(http.StatusNoContent) // an EventSource stops reconnecting
	}
	attempt, err := s.attempt(c, v)
	if err != nil {
		return err
	}
	o.Heartbeat = s.o.Heartbeat
	ctx, cancel := s.whileAllowed(r, v.ProjectID)
	defer cancel()
	seq, err := s.o.Logs.Follow(ctx, attempt, o)
	if err != nil {
		return logRefusal(err)
	}
	if events {
		out := newSSE(c)
		err = logs.WriteSSE(out.w, out.flushWritten, seq)
	} else {
		err = s.text(c, seq)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Info("log stream ended early", "request_id", requestid.From(r.Context()), "version", v.ID, "error", err)
		if !c.Response().Committed {
			return logRefusal(err)
		}
		if !events {
			panic(http.ErrAbortHandler) // the client must see that the text is not whole
		}
	}
	return nil
}

// whileAllowed ends with the request, when the server drains, so that no stream holds it up, and when the caller may no
// longer see the project.
func (s *Server) whileAllowed(r *http.Request, projectID string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() {
		defer cancel()
		recheck := time.NewTicker(s.o.Recheck)
		defer recheck.Stop()
		for {
			select {
			case <-s.draining:
				return
			case <-ctx.Done():
				return
			case <-recheck.C:
				if !s.stillSees(r, projectID) {
					return
				}
			}
		}
	}()
	return ctx, cancel
}

// flushWritten sends what was written to the response itself.
func (s *sse) flushWritten() error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(writeLimit))
	return flushed(s.rc)
}

// text writes the log byte for byte. The status waits for the first byte, so that a log that cannot be read is an error
// and not an empty text; with follow it goes out at once.
func (s *Server) text(c echo.Context, seq iter.Seq2[logs.Chunk, error]) error {
	w := c.Response()
	w.Header().Set(echo.HeaderContentType, "text/plain; charset=utf-8")
	w.Header().Set(echo.HeaderCacheControl, "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Accel-Buffering", "no")
	rc := http.NewResponseController(w.Writer)
	if c.QueryParam("follow") == "true" {
		w.WriteHeader(http.StatusOK)
		if err := flushed(rc); err != nil {
			return err
		}
	}
	err := logs.WriteText(w, func() error {
		_ = rc.SetWriteDeadline(time.Now().Add(writeLimit))
		return flushed(rc)
	}, seq)
	if err == nil && !w.Committed {
		w.WriteHeader(http.StatusOK)
	}
	return err
}

func logOptions(c echo.Context, events bool) (o logs.FollowOptions, err error) {
	q := c.QueryParams()
	o.Container = q.Get("container")
	o.Follow = q.Get("follow") == "true" || events && q.Get("follow") != "false"
	if t := q.Get("tail"); t != "" {
		n, err := strconv.ParseInt(t, 10, 64)
		if err != nil || n < 0 {
			return o, problem.InField(problem.BadParameter, "tail", "is no number of lines")
		}
		o.Tail = &n
	}
	if o.After, err = logs.ParseCursor(c.Request().Header.Get("Last-Event-ID")); err != nil {
		return o, problem.InField(problem.BadParameter, "Last-Event-ID", "is no position in a log: leave it out to read from the start").Because(err)
	}
	return o, nil
}

// attempt returns the id of the attempt that is asked for: by number, by the position to resume at, or the latest.
func (s *Server) attempt(c echo.Context, v process.Version) (string, error) {
	after, _ := logs.ParseCursor(c.Request().Header.Get("Last-Event-ID"))
	number := c.QueryParam("attempt")
	if number == "" && after.AttemptID == "" {
		return v.Attempt.ID, nil
	}
	all, err := s.o.Store.Attempts(c.Request().Context(), v.ID)
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if number == fmt.Sprint(a.Number) || number == "" && a.ID == after.AttemptID {
			return a.ID, nil
		}
	}
	if number == "" {
		return "", problem.InField(problem.BadParameter, "Last-Event-ID", "belongs to another version")
	}
	return "", problem.InField(problem.BadParameter, "attempt", "is %s: the version has attempts 1 to %d", number, len(all))
}

func logRefusal(err error) error {
	var container *logs.UnknownContainerError
	switch {
	case errors.As(err, &container):
		return problem.InField(problem.BadParameter, "container", "%s", container)
	case errors.Is(err, logs.ErrCursor):
		return problem.InField(problem.BadParameter, "Last-Event-ID", "%s", err)
	case errors.Is(err, logs.ErrMissing):
		return problem.New(problem.LogsUnavailable, "the log was stored, but its archive does not hold it now").Because(err)
	}
	return err
}

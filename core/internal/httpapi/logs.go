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
	"github.com/nagelfluh/nagelfluh/core/internal/replica"
	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
)

// logStream is a log on its way to a client.
type logStream struct {
	version string
	events  bool // not text
	seq     iter.Seq2[logs.Chunk, error]
	ctx     context.Context
	cancel  context.CancelFunc
}

// streamLogs serves one attempt's log, as events or as text. What is needed to open it is not held while it lasts: a
// thousand followers would each pay for it with a stack of twice the size.
func (s *Server) streamLogs(c echo.Context) error {
	l, err := s.openLog(c)
	if err != nil {
		return err
	}
	defer l.cancel()
	if l.seq == nil {
		return c.NoContent(http.StatusNoContent) // an EventSource stops reconnecting
	}
	if l.events {
		out := s.newSSE(c)
		err = logs.WriteSSE(out, out.patient.flush, l.seq)
	} else {
		err = s.text(c, l.seq)
	}
	if err != nil && l.ctx.Err() == nil {
		s.log.Info("log stream ended early", "request_id", requestid.From(c.Request().Context()), "version", l.version, "error", err)
		if !c.Response().Committed {
			return logRefusal(err)
		}
		if !l.events {
			panic(http.ErrAbortHandler) // the client must see that the text is not whole
		}
	}
	return nil
}

func (s *Server) openLog(c echo.Context) (*logStream, error) {
	r := c.Request()
	v, err := s.version(r.Context(), c.Param("version"))
	if err != nil {
		return nil, err
	}
	l := &logStream{version: v.ID, events: strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	o, err := logOptions(c, l.events)
	if err != nil {
		return nil, err
	}
	l.ctx, l.cancel = s.whileAllowed(r, v.ProjectID)
	if l.seq, err = s.logOf(replica.WithCaller(l.ctx, r.Header), c, v, o); err != nil {
		l.cancel()
		return nil, err
	}
	return l, nil
}

// logOf is the log of the attempt that is asked for, or of all; nil: the client has had its end.
func (s *Server) logOf(ctx context.Context, c echo.Context, v process.Version, o logs.FollowOptions) (seq iter.Seq2[logs.Chunk, error], err error) {
	o.Heartbeat = s.o.Heartbeat
	if c.QueryParam("all_attempts") == "true" {
		seq, err = logs.All(ctx, s.o.Logs, func(ctx context.Context) ([]process.Attempt, error) { return s.o.Store.Attempts(ctx, v.ID) }, o)
		return seq, logRefusal(err)
	}
	if o.After.End {
		return nil, nil
	}
	attempt, err := s.attempt(c, v)
	if err != nil {
		return nil, err
	}
	seq, err = s.o.Logs.Follow(ctx, attempt, o)
	return seq, logRefusal(err)
}

// whileAllowed ends with the request, when the server drains, so that no stream holds it up, and when the caller may no
// longer see the project. A thousand who follow a silent log cost no goroutine for it.
func (s *Server) whileAllowed(r *http.Request, projectID string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	undrain := context.AfterFunc(s.draining, cancel)
	set := make(chan struct{})
	var recheck *time.Timer
	recheck = time.AfterFunc(s.o.Recheck, func() {
		<-set
		switch {
		case ctx.Err() != nil:
		case s.stillSees(r, projectID):
			recheck.Reset(s.o.Recheck)
		default:
			cancel()
		}
	})
	close(set)
	return ctx, func() { cancel(); undrain(); recheck.Stop() }
}

// text writes the log byte for byte. The status waits for the first byte, so that a log that cannot be read is an error
// and not an empty text; with follow it goes out at once.
func (s *Server) text(c echo.Context, seq iter.Seq2[logs.Chunk, error]) error {
	w := c.Response()
	w.Header().Set(echo.HeaderContentType, "text/plain; charset=utf-8")
	w.Header().Set(echo.HeaderCacheControl, "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Accel-Buffering", "no")
	out := s.newPatient(w)
	if c.QueryParam("follow") == "true" {
		w.WriteHeader(http.StatusOK)
		if err := out.flush(); err != nil {
			return err
		}
	}
	err := logs.WriteText(out, out.flush, c.QueryParam("all_containers") == "true", seq)
	if err == nil && !w.Committed {
		w.WriteHeader(http.StatusOK)
	}
	return err
}

func logOptions(c echo.Context, events bool) (o logs.FollowOptions, err error) {
	q := c.QueryParams()
	o.Container, o.Pod, o.AllContainers = q.Get("container"), q.Get("pod"), q.Get("all_containers") == "true"
	o.Follow = q.Get("follow") == "true" || events && q.Get("follow") != "false"
	switch {
	case o.AllContainers && o.Container != "":
		return o, problem.InField(problem.BadParameter, "all_containers", "goes not with container")
	case o.AllContainers && o.Follow:
		return o, problem.InField(problem.BadParameter, "all_containers", "is for what is there: one container at a time can be followed; set follow=false")
	case q.Get("all_attempts") == "true" && q.Get("attempt") != "":
		return o, problem.InField(problem.BadParameter, "all_attempts", "goes not with attempt")
	}
	if t := q.Get("restart"); t != "" {
		n, err := strconv.ParseInt(t, 10, 32)
		if err != nil || n < 0 {
			return o, problem.InField(problem.BadParameter, "restart", "is no number of an instance: they count from 0")
		}
		restart := int32(n)
		o.Restart = &restart
	}
	if t := q.Get("since"); t != "" {
		if o.Since, err = since(t, time.Now()); err != nil {
			return o, problem.InField(problem.BadParameter, "since", "is neither a time such as 2026-11-30T08:00:00Z nor how long ago, such as 10m")
		}
	}
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

// since reads a moment, or how long ago it was.
func since(text string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("it is in the future")
	}
	return now.Add(-d), err
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
	case errors.Is(err, logs.ErrNoPod):
		return problem.InField(problem.BadParameter, "pod", "%s", err)
	case errors.Is(err, logs.ErrNoInstance):
		return problem.InField(problem.BadParameter, "restart", "%s", err)
	case errors.Is(err, logs.ErrMissing):
		return problem.New(problem.LogsUnavailable, "the log was stored, but its archive does not hold it now").Because(err)
	}
	return err
}

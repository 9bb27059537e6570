package httpapi

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/problem"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// audience says which events a stream carries.
type audience struct {
	project string // id; empty: see projects
	version string // id; empty: all
	within  string // id of the project that the caller must see; empty: none in particular
	// projects bounds an ordinary user to its projects; it is read again while the stream lives. nil: an admin.
	projects func(ctx context.Context) ([]string, error)
	seen     []string
}

func (a *audience) wants(e encoded) bool {
	switch {
	case a.version != "":
		return e.VersionID == a.version
	case a.project != "":
		return e.ProjectID == a.project
	case a.projects != nil:
		return slices.Contains(a.seen, e.ProjectID)
	}
	return true
}

func (s *Server) streamEvents(c echo.Context) error {
	ctx := c.Request().Context()
	a := audience{}
	if ref := c.QueryParam("project"); ref != "" {
		p, err := s.project(ctx, ref)
		if err != nil {
			return err
		}
		a.project, a.within = p.ID, p.ID
	} else if who, _ := auth.From(ctx); !who.Admin {
		a.projects = s.memberships(who.UserID)
	}
	after, given, err := s.position(c)
	if err != nil {
		return err
	}
	if !given {
		if after, err = s.o.Store.LastSeq(ctx); err != nil {
			return err
		}
	}
	return s.stream(c, a, after, nil)
}

func (s *Server) streamVersionEvents(c echo.Context) error {
	v, err := s.version(c.Request().Context(), c.Param("version"))
	if err != nil {
		return err
	}
	after, _, err := s.position(c)
	if err != nil {
		return err
	}
	ended := func(ctx context.Context) (bool, error) {
		v, err := s.o.Store.Version(ctx, v.ID)
		return v.State().Terminal(), err
	}
	return s.stream(c, audience{version: v.ID, within: v.ProjectID}, after, ended)
}

// position is where a stream begins. A number that no event has had yet is refused: whoever has one saw another database,
// such as that before a backup was restored, and would be told nothing until the numbers are used up.
func (s *Server) position(c echo.Context) (after int64, given bool, err error) {
	field, text := "Last-Event-ID", c.Request().Header.Get("Last-Event-ID")
	if text == "" {
		field, text = "after", c.QueryParam("after")
	}
	if text == "" {
		return 0, false, nil
	}
	after, err = strconv.ParseInt(text, 10, 64)
	if err != nil || after < 0 {
		return 0, false, problem.InField(problem.BadParameter, field, "is no sequence number")
	}
	last, err := s.o.Store.LastSeq(c.Request().Context())
	if err != nil {
		return 0, false, err
	}
	if after > last {
		return 0, false, problem.InField(problem.BadParameter, field, "is higher than the number of any event so far, %d: leave it out, or begin at 0", last)
	}
	return after, true, nil
}

func (s *Server) memberships(userID string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		all, err := s.o.Store.Projects(ctx)
		if err != nil {
			return nil, err
		}
		mine := []string{}
		for _, p := range all {
			if slices.Contains(p.Members, userID) {
				mine = append(mine, p.ID)
			}
		}
		return mine, nil
	}
}

// stream sends events until the client goes or may no longer see them, the server drains, or ended (nil: never) says that nothing follows.
func (s *Server) stream(c echo.Context, a audience, after int64, ended func(context.Context) (bool, error)) error {
	ctx := c.Request().Context()
	if err := s.refresh(ctx, &a); err != nil {
		return err
	}
	out, err := s.openSSE(c)
	if err != nil {
		return nil // the client is gone
	}
	heartbeat := time.NewTicker(s.o.Heartbeat)
	defer heartbeat.Stop()
	known := time.Now()
	check := ended != nil
	for {
		changed, next, sent, terminal, err := s.send(ctx, out, &a, after)
		if err != nil {
			return s.broken(c, err)
		}
		after = next
		check = check || terminal
		if check && ended != nil {
			// The end is read from the row, then what was written up to it is sent, so that no event is left behind.
			check = false
			over, err := ended(ctx)
			if err != nil {
				return s.broken(c, err)
			}
			if over {
				if _, _, _, _, err := s.sendStored(ctx, out, &a, after); err != nil {
					return s.broken(c, err)
				}
				out.event(0, "end", []byte("{}"))
				return s.broken(c, out.flush())
			}
		}
		if sent {
			heartbeat.Reset(s.o.Heartbeat)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.draining.Done():
			return nil
		case <-changed:
		case <-heartbeat.C:
			out.comment("still here")
			if err := out.flush(); err != nil {
				return nil
			}
		}
		if time.Since(known) > s.o.Recheck {
			if !s.stillSees(c.Request(), a.within) {
				return nil
			}
			if err := s.refresh(ctx, &a); err != nil {
				return s.broken(c, err)
			}
			known = time.Now()
		}
	}
}

func (s *Server) refresh(ctx context.Context, a *audience) (err error) {
	if a.projects != nil {
		a.seen, err = a.projects(ctx)
	}
	return err
}

// broken ends a stream that has begun: the client reconnects and resumes.
func (s *Server) broken(c echo.Context, err error) error {
	if err != nil && c.Request().Context().Err() == nil {
		s.log.Debug("event stream ended", "error", err)
	}
	return nil
}

// send writes what is new above after and returns the number up to which everything was looked at.
func (s *Server) send(ctx context.Context, out *sse, a *audience, after int64) (changed <-chan struct{}, next int64, sent, terminal bool, err error) {
	events, _, changed, kept := s.feed.since(after)
	if !kept {
		return s.sendStored(ctx, out, a, after)
	}
	next = after
	for _, e := range events {
		next = e.Seq
		if a.wants(e) {
			out.event(e.Seq, string(e.Kind), e.data)
			sent = true
			terminal = terminal && e.State == "" || process.State(e.State).Terminal() // another attempt may have followed
		}
	}
	if sent {
		err = out.flush()
	}
	return changed, next, sent, terminal, err
}

// sendStored reads the store until it has caught up with the feed.
func (s *Server) sendStored(ctx context.Context, out *sse, a *audience, after int64) (changed <-chan struct{}, next int64, sent, terminal bool, err error) {
	_, _, changed, _ = s.feed.since(after)
	// Everything up to this number is committed, so the pages below miss nothing up to it.
	last, err := s.o.Store.LastSeq(ctx)
	if err != nil {
		return nil, after, false, false, err
	}
	for {
		page, err := s.o.Store.Events(ctx, store.EventFilter{After: after, ProjectID: a.project, VersionID: a.version, Limit: feedPage})
		if err != nil {
			return nil, after, sent, terminal, err
		}
		for _, e := range page {
			after = e.Seq
			if enc := encode(ctx, s.names, e); a.wants(enc) {
				out.event(e.Seq, string(e.Kind), enc.data)
				sent = true
				terminal = terminal && e.State == "" || process.State(e.State).Terminal() // another attempt may have followed
			}
		}
		if sent {
			if err := out.flush(); err != nil {
				return nil, after, sent, terminal, err
			}
		}
		if len(page) < feedPage {
			return changed, max(after, last), sent, terminal, nil
		}
	}
}

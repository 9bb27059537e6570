package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/requestid"
)

// restartWait is how long a call waits for a plugin that is being started, so that the call after a crash finds it
// running again.
const restartWait = 2 * time.Second

// call runs one call of the plugin's own service, with its deadline. The error names the plugin.
func (s *slot) call(ctx context.Context, method string, limit time.Duration, do func(context.Context, *instance) error) error {
	begun := time.Now()
	err := s.callOnce(ctx, method, limit, do)
	if s.host.o.Observe != nil {
		s.host.o.Observe(s.name, method, time.Since(begun), err)
	}
	if id := requestid.From(ctx); id != "" {
		s.log.Debug("called for a request", "request_id", id, "method", method, "took", time.Since(begun), "ok", err == nil)
	}
	return err
}

func (s *slot) callOnce(ctx context.Context, method string, limit time.Duration, do func(context.Context, *instance) error) error {
	if s.cfg.Timeout > 0 {
		limit = s.cfg.Timeout
	}
	in, err := s.instance(ctx)
	if err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = do(call, in)
	if err == nil {
		return nil
	}
	var bad *InvalidConfig
	if errors.As(err, &bad) {
		for i := range bad.Fields {
			bad.Fields[i].Message = s.redact.clean(bad.Fields[i].Message)
		}
		return s.errorf(false, bad, "%v", bad)
	}
	return s.callError(ctx, call, in, method, limit, err)
}

// instance returns the one that runs. It waits a moment for one that is being started.
func (s *slot) instance(ctx context.Context) (*instance, error) {
	in, state, changed := s.current()
	if in != nil {
		return in, nil
	}
	timer := time.NewTimer(restartWait)
	defer timer.Stop()
	for state == Starting || state == Running {
		select {
		case <-ctx.Done():
			return nil, s.errorf(true, ctx.Err(), "it was still being started when the caller gave up")
		case <-timer.C:
			return nil, s.absent(state)
		case <-changed:
		}
		if in, state, changed = s.current(); in != nil {
			return in, nil
		}
	}
	return nil, s.absent(state)
}

// current returns the instance unless it is dead, the state, and what is closed when the state changes.
func (s *slot) current() (*instance, State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		return nil, s.state, s.changed
	}
	select {
	case <-s.running.proc.exited: // the supervisor is about to see it
		return nil, s.state, s.changed
	default:
		return s.running, s.state, s.changed
	}
}

// absent is the error of a call to a plugin that does not run.
func (s *slot) absent(state State) *Error {
	s.mu.Lock()
	reason := s.lastErr
	s.mu.Unlock()
	temporary := state == Starting || state == Running || state == Backoff
	text := map[State]string{
		Starting: "it is still being started", Running: "it is being restarted", Backoff: "it crashed and is started again soon",
		Deactivated: "it is deactivated", Broken: "it is broken", Refused: "it is refused", Missing: "it is required but missing",
	}[state]
	if reason != "" {
		text = fmt.Sprintf("%s: %s", text, reason)
	}
	return s.errorf(temporary, ErrNotRunning, "%s", text)
}

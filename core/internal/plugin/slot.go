package plugin

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// slot is the place of one plugin name: it outlives the processes that run in it. One goroutine supervises it; everything
// else reads its state and calls the instance that runs.
type slot struct {
	host   *Host
	name   string
	kind   Kind
	cfg    Config
	pin    []byte
	log    hclog.Logger
	redact *redactor

	poke    chan struct{} // an admin asks for another try
	settled chan struct{} // closed when the first start has come to something

	mu       sync.Mutex
	state    State
	since    time.Time
	lastErr  string
	path     string
	starts   int
	running  *instance     // nil: none
	desc     *description  // of the last instance that was described; nil: none yet
	types    []clusterType // likewise
	changed  chan struct{} // closed and replaced at each change of state
	settling sync.Once
}

func newSlot(h *Host, name string, kind Kind, cfg Config, pin []byte) *slot {
	return &slot{
		host: h, name: name, kind: kind, cfg: cfg, pin: pin, log: h.o.Logger.Named(name), redact: &redactor{},
		poke: make(chan struct{}, 1), settled: make(chan struct{}), changed: make(chan struct{}),
		state: Starting, since: now(),
	}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// set changes the state. Reason is kept as the last error unless it is empty. The host's lists are made anew.
func (s *slot) set(state State, reason string, in *instance) {
	s.host.refreshing.Lock()
	s.mu.Lock()
	if s.state != state {
		s.state, s.since = state, now()
	}
	if reason != "" {
		s.lastErr = s.redact.clean(reason)
	}
	s.running = in
	changed := s.changed
	s.changed = make(chan struct{})
	s.mu.Unlock()
	s.host.refresh()
	s.host.refreshing.Unlock()
	close(changed)
	if state != Starting {
		s.settling.Do(func() { close(s.settled) })
	}
}

// note keeps a reason without a change of state.
func (s *slot) note(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = s.redact.clean(reason)
}

// supervise keeps the plugin running until the context ends.
func (s *slot) supervise(ctx context.Context) {
	defer s.settling.Do(func() { close(s.settled) })
	var failures []time.Time
	for {
		select {
		case <-s.poke: // it is being started anyway
		default:
		}
		s.set(Starting, "", nil)
		f, in, err := s.launch(ctx)
		if err == nil {
			s.log.Info("plugin runs", "pid", in.proc.pid.Load(), "version", s.describe().version)
			s.set(Running, "", in)
			err = s.watch(ctx, in)
			s.set(Starting, "", nil)
			in.stop()
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errPoked) {
			failures = nil
			continue
		}
		var pause time.Duration // zero: none; negative: until something changes
		failures, pause = s.judge(err, failures)
		if pause == 0 {
			continue
		}
		again, anew := s.rest(ctx, f, pause)
		if !again {
			return
		}
		if anew {
			failures = nil
		}
	}
}

// errPoked: an admin asked for a restart.
var errPoked = errors.New("restarted on request")

// judge takes a failure into account and says how long to pause before the next start: negative means until the file
// changes or an admin asks.
func (s *slot) judge(err error, failures []time.Time) ([]time.Time, time.Duration) {
	var bad *problem
	if errors.As(err, &bad) {
		s.log.Warn("plugin is not used", "state", bad.state, "reason", s.redact.clean(bad.reason), "remedy", bad.remedy)
		s.set(bad.state, bad.Error(), nil)
		return failures, -1
	}
	at := time.Now()
	failures = append(failures, at)
	for at.Sub(failures[0]) > s.host.o.FailureWindow {
		failures = failures[1:]
	}
	reason := s.redact.clean(err.Error())
	if n := len(failures); n > s.host.o.FailureBudget {
		s.log.Error("plugin is deactivated", "failures", n, "within", s.host.o.FailureWindow, "last", reason)
		s.set(Deactivated, fmt.Sprintf("%s; it failed %d times within %s and is not started again until its file changes or an admin reactivates it",
			reason, n, s.host.o.FailureWindow), nil)
		return failures, -1
	}
	pause := s.host.pause(len(failures))
	s.log.Warn("plugin failed", "reason", reason, "failures", len(failures), "next_start_in", pause.Round(time.Millisecond))
	if pause == 0 {
		s.note(reason)
		return failures, 0
	}
	s.set(Backoff, reason, nil)
	return failures, pause
}

// rest waits for the pause to pass, for the file to change, or for an admin. It reports false when the context ended,
// and anew when the past failures no longer count.
func (s *slot) rest(ctx context.Context, f file, pause time.Duration) (again, anew bool) {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	look := time.NewTicker(s.host.pace.look)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, false
		case <-over:
			return true, false
		case <-s.poke:
			return true, true
		case <-look.C:
			if now, _ := s.host.shelf.inspect(s.name); now.mark != f.mark {
				s.log.Info("the plugin's file has changed; it is started again")
				return true, true
			}
		}
	}
}

// pause is the back-off after the n-th failure within the window: none after the first, then doubled each time up to a
// limit, with jitter so that plugins that failed together do not return together.
func (h *Host) pause(n int) time.Duration {
	if n <= 1 {
		return 0
	}
	d := h.pace.backoff
	for range n - 2 {
		d = min(2*d, h.pace.maxBackoff)
	}
	return d/2 + rand.N(d/2+1)
}

// launch checks, starts, describes and configures the plugin, all within the start limit.
func (s *slot) launch(ctx context.Context) (file, *instance, error) {
	f, bad := s.host.shelf.inspect(s.name)
	s.mu.Lock()
	s.path = f.path
	s.mu.Unlock()
	if bad == nil {
		bad = checkPin(f.real, s.pin)
	}
	if bad != nil {
		return f, nil, bad
	}
	s.mu.Lock()
	s.starts++
	known := s.desc
	s.mu.Unlock()
	if known == nil && len(s.cfg.Config) > 0 {
		// Until the schema is known every value of the configuration may be a secret.
		s.redact.add(secretValues(nil, s.cfg.Config)...)
	}
	ctx, cancel := context.WithTimeout(ctx, s.host.o.StartLimit)
	defer cancel()
	in, err := s.boot(ctx, f)
	if err != nil {
		return f, nil, err
	}
	if err := s.introduce(ctx, in); err != nil {
		in.stop()
		return f, nil, err
	}
	return f, in, nil
}

// watch returns when the instance must be replaced, with the reason, or when the context ends.
func (s *slot) watch(ctx context.Context, in *instance) error {
	check := time.NewTicker(s.host.pace.health)
	defer check.Stop()
	missed := 0
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-in.proc.exited:
			await(in.proc.done, 2*drainGrace)
			return errors.New("the process ended: " + in.proc.ending())
		case <-s.poke:
			return errPoked
		case <-check.C:
			err := s.checkHealth(ctx, in)
			if err == nil {
				missed = 0
				continue
			}
			if missed++; missed >= healthMisses {
				return fmt.Errorf("it failed %d health checks: %w", missed, err)
			}
		}
	}
}

// healthMisses is how many health checks in a row may fail.
const healthMisses = 3

// checkHealth asks over RPC. A plugin that does not serve the health check but says so is alive.
func (s *slot) checkHealth(ctx context.Context, in *instance) error {
	ctx, cancel := context.WithTimeout(ctx, s.host.pace.healthLimit)
	defer cancel()
	r, err := in.health.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
	switch {
	case status.Code(err) == codes.Unimplemented, status.Code(err) == codes.NotFound:
		return nil
	case err != nil:
		return err
	case r.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return fmt.Errorf("it says %s", r.GetStatus())
	}
	return nil
}

func (s *slot) describe() description {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.desc == nil {
		return description{}
	}
	return *s.desc
}

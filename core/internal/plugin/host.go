package plugin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/sdk/handshake"
)

const (
	onErrorFail   = "fail"
	onErrorIgnore = "ignore"
)

// Host holds the plugins. Safe for concurrent use.
type Host struct {
	o       Options
	shelf   shelf
	slots   []*slot // in order; fixed
	byName  map[string]*slot
	pace    pace
	sets    func() map[int]goplugin.PluginSet // the protocol versions that this host speaks
	environ func() []string                   // of this process

	mu      sync.Mutex
	root    *socketRoot // nil: none yet
	cancel  context.CancelFunc
	closed  bool
	running sync.WaitGroup
	starts  atomic.Int64

	enforce    atomic.Bool  // strict plugins are in force: Start is over
	refreshing sync.RWMutex // held over a change of a slot's state and the lists that follow from it, so that List sees both or neither
	lists      atomic.Pointer[lists]
}

// pace is how fast things go; tests have their own.
type pace struct {
	backoff, maxBackoff time.Duration
	look                time.Duration // between two looks at the file of a plugin that rests
	health, healthLimit time.Duration
}

// NewHost finds the plugins and checks the configuration. It starts nothing. An error names every plugin that is there
// twice, every configuration without a plugin, and every setting that cannot be.
func NewHost(o Options) (*Host, error) {
	o.defaults()
	h := &Host{o: o, byName: map[string]*slot{}, sets: handshake.ClientSets, environ: os.Environ,
		pace: pace{backoff: time.Second, maxBackoff: time.Minute, look: 2 * time.Second, health: 10 * time.Second, healthLimit: 5 * time.Second}}
	var err error
	if h.shelf, err = openShelf(o.Dirs); err != nil {
		return nil, err
	}
	found, err := h.shelf.names()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if paths := found[name]; len(paths) > 1 {
			errs = append(errs, fmt.Errorf("plugin %s is there more than once: %s; remove or rename all but one", name, strings.Join(paths, ", ")))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Plugins)) {
		c := o.Plugins[name]
		if _, there := found[name]; !there && !c.Required {
			errs = append(errs, fmt.Errorf("the configuration names plugin %s, but no plugin directory (%s) holds such a file; install it, correct the name, or mark it required",
				name, strings.Join(o.Dirs, ", ")))
			continue
		}
		errs = append(errs, c.check(name))
		found[name] = nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		kind, _ := kindOf(name) // names and Config.check let no other pass
		c := o.Plugins[name]
		pin, _ := hex.DecodeString(c.SHA256)
		s := newSlot(h, name, kind, c, pin)
		h.slots = append(h.slots, s)
		h.byName[name] = s
	}
	h.refreshing.Lock()
	h.refresh()
	h.refreshing.Unlock()
	return h, nil
}

func (o *Options) defaults() {
	orElse := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	orElse(&o.StartLimit, time.Minute)
	orElse(&o.StartWait, 5*time.Second)
	orElse(&o.FailureWindow, 10*time.Minute)
	if o.FailureBudget <= 0 {
		o.FailureBudget = 8
	}
	if o.HostVersion == "" {
		o.HostVersion = "dev"
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
}

// check says what is wrong with the configuration of one plugin.
func (c Config) check(name string) error {
	kind, ok := kindOf(name)
	if !ok {
		return fmt.Errorf("the configuration names plugin %q; names of plugins begin with provider- or selector-", name)
	}
	if c.OnError != "" && c.OnError != onErrorFail && c.OnError != onErrorIgnore {
		return fmt.Errorf("plugin %s: on_error is %q; it is fail or ignore", name, c.OnError)
	}
	if kind == Provider && c.OnError == onErrorIgnore {
		return fmt.Errorf("plugin %s: on_error is ignore, which only a selector can have; remove it", name)
	}
	if kind == Selector && c.GrantBackendEnvironment != nil {
		return fmt.Errorf("plugin %s: grant_backend_environment is for providers; remove it", name)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("plugin %s: timeout is negative", name)
	}
	if pin, err := hex.DecodeString(c.SHA256); err != nil || (len(pin) != 0 && len(pin) != 32) {
		return fmt.Errorf("plugin %s: sha256 is not 64 hex digits; `sha256sum` prints them", name)
	}
	return nil
}

// Start starts all plugins at once and returns when each runs or has failed, or after the start wait; what is slow goes
// on in the background. A plugin that fails is no error of Start: it is in the list, with its reason. With
// StrictPlugins, Start waits until every provider runs or has failed, and a shadowed cluster type is an error. After an
// error the host must still be closed. Start may be called once.
func (h *Host) Start(ctx context.Context) error {
	h.mu.Lock()
	if h.closed || h.cancel != nil {
		h.mu.Unlock()
		return errors.New("the plugin host was started or closed before")
	}
	root, err := newSocketRoot(h.o.SocketDir)
	if err != nil {
		h.mu.Unlock()
		return err
	}
	h.root = root
	// Plugins live until Close, not until the caller's context ends.
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	for _, s := range h.slots {
		h.running.Go(func() { s.supervise(life) })
	}
	h.mu.Unlock()

	wait := time.NewTimer(h.o.StartWait)
	defer wait.Stop()
	for _, s := range h.slots {
		over := wait.C
		if h.o.StrictPlugins && s.kind == Provider {
			over = nil // the start limit ends this
		}
		select {
		case <-s.settled:
			continue
		default:
		}
		select {
		case <-s.settled:
		case <-ctx.Done():
			return fmt.Errorf("waiting for plugins: %w", ctx.Err())
		case <-over:
			wait.Reset(0) // the others have had their time, too
			h.o.Logger.Warn("plugin is slow to start; it goes on in the background", "plugin", s.name)
		}
	}
	if !h.o.StrictPlugins {
		return nil
	}
	h.enforce.Store(true)
	return h.strict()
}

// strict makes an error of shadowed types.
func (h *Host) strict() error {
	var errs []error
	for _, t := range h.Types() {
		if t.ShadowedBy != "" {
			errs = append(errs, fmt.Errorf("cluster type %s is offered by %s and by %s; with strict plugins only one may: remove one or configure it otherwise",
				t.Name, t.ShadowedBy, t.Plugin))
		}
	}
	return errors.Join(errs...)
}

// Close ends all plugins and waits for that, in bounded time even when a plugin hangs. Calls in flight end with an error.
// It may be called twice, and before Start.
func (h *Host) Close() {
	h.mu.Lock()
	cancel, root := h.cancel, h.root
	h.closed, h.root = true, nil
	h.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	h.running.Wait()
	if root != nil {
		root.remove()
	}
}

// socketDir makes the private directory of one start.
func (h *Host) socketDir() (string, error) {
	h.mu.Lock()
	root := h.root
	h.mu.Unlock()
	if root == nil {
		return "", errors.New("the plugin host is closed")
	}
	dir := filepath.Join(root.dir, strconv.FormatInt(h.starts.Add(1)%10_000_000, 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("no directory for the plugin's socket: %w", err)
	}
	return dir, nil
}

// List says of each plugin what there is to know, in order. What it tells is already true of ServedTypes and Selectors.
func (h *Host) List() []Status {
	h.refreshing.RLock()
	defer h.refreshing.RUnlock()
	l := h.lists.Load()
	out := make([]Status, 0, len(h.slots))
	for _, s := range h.slots {
		out = append(out, s.status(l))
	}
	return out
}

// status reads the state at one moment.
func (s *slot) status(l *lists) Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Name: s.name, Kind: s.kind, State: s.state, Since: s.since, Required: s.cfg.Required, IgnoreErrors: s.cfg.OnError == onErrorIgnore,
		Restarts: max(0, s.starts-1), LastError: s.lastErr, Path: s.path,
	}
	if s.desc != nil {
		st.Version, st.Title, st.DocsURL = s.desc.version, s.desc.title, s.desc.docsURL
	}
	for _, t := range s.types {
		if by := l.shadow[offer{s.name, t.Name}]; by != "" {
			st.Shadowed = append(st.Shadowed, Shadow{Type: t.Name, By: by})
			continue
		}
		st.Types = append(st.Types, t.Name)
	}
	if s.running != nil {
		st.PID = int(s.running.proc.pid.Load())
		st.Memory = residentBytes(st.PID)
	}
	return st
}

// Selectors returns the chain in name order. It holds the selectors that do not run as well: a call to one of those is an
// error, which counts under its failure policy. A file that never worked and that the configuration does not name is left
// out. The slice is shared and must not be changed.
func (h *Host) Selectors() []placement.Selector { return h.lists.Load().chain }

// Restart starts a plugin again: one that runs is ended first, one that was deactivated or refused gets another try, and
// its past failures are forgotten. It does not wait.
func (h *Host) Restart(name string) error {
	s, ok := h.byName[name]
	if !ok {
		return fmt.Errorf("%w: %s", ErrUnknownPlugin, name)
	}
	select {
	case s.poke <- struct{}{}:
	default: // asked already
	}
	return nil
}

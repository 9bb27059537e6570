package plugin

import (
	"context"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	pluginv1 "github.com/nagelfluh/nagelfluh/sdk/proto/nagelfluh/plugin/v1"
)

// selectLimit is the default deadline of a selector's call.
const selectLimit = 5 * time.Second

// chained is a selector as the placement engine sees it.
type chained struct{ *slot }

var _ placement.Selector = chained{}

// Name is the file name.
func (c chained) Name() string { return c.name }

// IgnoreErrors is the operator's failure policy.
func (c chained) IgnoreErrors() bool { return c.cfg.OnError == onErrorIgnore }

// Hooks is what the plugin said last; one that never said anything is asked everything, and answers with an error.
func (c chained) Hooks() placement.Hooks {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.desc == nil {
		return placement.Hooks{SelectCluster: true, SelectClusters: true}
	}
	return placement.Hooks{
		SelectCluster:  c.desc.able[pluginv1.Capability_CAPABILITY_SELECT_CLUSTER],
		SelectClusters: c.desc.able[pluginv1.Capability_CAPABILITY_SELECT_CLUSTERS],
	}
}

// SelectCluster asks the plugin.
func (c chained) SelectCluster(ctx context.Context, s *placement.Snapshot, r placement.Request) (a placement.Answer, err error) {
	err = c.call(ctx, "SelectCluster", selectLimit, func(ctx context.Context, in *instance) (err error) {
		a, err = in.selectCluster(ctx, s, r)
		return err
	})
	if err != nil {
		return placement.Answer{}, err
	}
	a.Reason = c.redact.clean(a.Reason)
	return a, nil
}

// SelectClusters asks the plugin.
func (c chained) SelectClusters(ctx context.Context, s *placement.Snapshot, u placement.User, p placement.Project) (choice placement.Choice, err error) {
	err = c.call(ctx, "SelectClusters", selectLimit, func(ctx context.Context, in *instance) (err error) {
		choice, err = in.selectClusters(ctx, s, u, p)
		return err
	})
	if err != nil {
		return placement.Choice{}, err
	}
	return choice, nil
}

// stores is a selector that may be asked for the storage of a new project.
type stores struct{ chained }

var _ storage.Selector = stores{}

// StorageSelectors returns, in name order, the selectors to ask for the storage of a new project. Like Selectors it holds
// those that do not run: one that never said what it can is asked, and answers with an error.
func (h *Host) StorageSelectors() []storage.Selector {
	var out []storage.Selector
	for _, s := range h.Selectors() {
		if c, ok := s.(chained); ok && c.selectsStorage() {
			out = append(out, stores{c})
		}
	}
	return out
}

func (c chained) selectsStorage() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.desc == nil || c.desc.able[pluginv1.Capability_CAPABILITY_SELECT_STORAGE]
}

// SelectStorage asks the plugin.
func (s stores) SelectStorage(ctx context.Context, u placement.User, p placement.Project, offered []storage.Offer) (a storage.Answer, err error) {
	err = s.call(ctx, "SelectStorage", selectLimit, func(ctx context.Context, in *instance) (err error) {
		a, err = in.selectStorage(ctx, u, p, offered)
		return err
	})
	if err != nil {
		return storage.Answer{}, err
	}
	a.Reason = s.redact.clean(a.Reason)
	return a, nil
}

// inChain says whether the selector is asked. One that was never usable, and that the operator does not name, is only
// shown in the list: a stray file must not stop all placements. Every other one is asked, and when it does not run its
// error counts under its failure policy.
func (s *slot) inChain() bool {
	_, named := s.host.o.Plugins[s.name]
	s.mu.Lock()
	defer s.mu.Unlock()
	return named || s.desc != nil || s.state == Starting || s.state == Running || s.state == Backoff
}

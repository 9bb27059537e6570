package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
)

// lists is what follows from the state of all slots: the chain of selectors, and who serves which cluster type. It is
// made anew at each change and read without a lock.
type lists struct {
	chain []placement.Selector
	// owner is by type the first plugin, by name, that offers it. It stays the owner while it is down: clusters, and
	// their secrets, do not go to another plugin because of a crash.
	owner  map[string]*slot
	served map[string]string // by type the name of its owner, when that is in use
	shadow map[offer]string  // by offer the name of the plugin that serves it instead
}

// offer is one plugin's offer of one type.
type offer struct{ plugin, name string }

// refresh makes the lists anew and logs what is newly shadowed. The caller holds h.refreshing.
func (h *Host) refresh() {
	next := &lists{owner: map[string]*slot{}, served: map[string]string{}, shadow: map[offer]string{}}
	for _, s := range h.slots {
		if s.kind == Selector && s.inChain() {
			next.chain = append(next.chain, chained{s})
		}
		types, inUse := s.offers()
		for _, t := range types {
			if owner := next.owner[t.Name]; owner != nil {
				next.shadow[offer{s.name, t.Name}] = owner.name
				continue
			}
			next.owner[t.Name] = s
			if inUse {
				next.served[t.Name] = s.name
			}
		}
	}
	if old := h.lists.Swap(next); old != nil {
		for o, by := range next.shadow {
			if old.shadow[o] != by {
				h.o.Logger.Warn("cluster type is shadowed: an earlier plugin serves it", "type", o.name, "plugin", o.plugin, "served_by", by)
			}
		}
	}
}

// offers returns the types of the last instance, and whether the plugin is in use.
func (s *slot) offers() (types []clusterType, inUse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.types, s.state == Running || s.state == Starting || s.state == Backoff
}

// allowed refuses a plugin that would shadow a type, or be shadowed, once strict plugins are in force.
func (h *Host) allowed(s *slot, types []clusterType) error {
	if !h.enforce.Load() {
		return nil
	}
	for _, t := range types {
		if owner := h.lists.Load().owner[t.Name]; owner != nil && owner != s {
			return refused(fmt.Sprintf("it offers cluster type %s, which %s serves, and strict plugins are in force", t.Name, owner.name),
				"remove one of the two or configure it otherwise")
		}
	}
	return nil
}

// Types returns every cluster type as every provider offers it: those that are served first, each group by name.
func (h *Host) Types() []TypeInfo {
	l := h.lists.Load()
	var out []TypeInfo
	for _, s := range h.slots {
		types, inUse := s.offers()
		for _, t := range types {
			info := t.TypeInfo
			switch by := l.shadow[offer{s.name, t.Name}]; {
			case by != "":
				info.ShadowedBy = by
				info.Problem = "plugin " + by + " serves the type instead"
			case !inUse:
				_, state, _ := s.current()
				info.Problem = s.absent(state).Error()
			}
			out = append(out, info)
		}
	}
	slices.SortStableFunc(out, func(a, b TypeInfo) int {
		if (a.ShadowedBy == "") != (b.ShadowedBy == "") {
			if a.ShadowedBy == "" {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return out
}

// ServedTypes returns the name of the plugin that serves each cluster type. A plugin that is being restarted still
// serves its types; one that is deactivated, broken or refused does not.
func (h *Host) ServedTypes() map[string]string { return maps.Clone(h.lists.Load().served) }

// server finds the plugin and the type behind the name of a cluster type. The error says who might have served it.
func (h *Host) server(name string) (*slot, clusterType, error) {
	if s := h.lists.Load().owner[name]; s != nil {
		types, _ := s.offers()
		for _, t := range types {
			if t.Name == name {
				return s, t, nil
			}
		}
	}
	var down []string
	for _, s := range h.slots {
		if _, state, _ := s.current(); s.kind == Provider && s.describe().name == "" {
			down = append(down, s.absent(state).Error())
		}
	}
	if len(down) == 0 {
		return nil, clusterType{}, fmt.Errorf("%w: no provider plugin offers type %q; see `nagelfluh plugins list`", ErrNotServed, name)
	}
	return nil, clusterType{}, fmt.Errorf("%w: no running provider plugin offers type %q; not running: %s", ErrNotServed, name, strings.Join(down, "; "))
}

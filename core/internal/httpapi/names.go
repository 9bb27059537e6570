package httpapi

import (
	"context"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
)

// namesFor bounds how long reading a name may hold up an event.
const namesFor = 2 * time.Second

// names knows what people and clusters are called, those that were removed included. A name is read once, and that of a
// cluster again after the cluster changed. Not knowing one costs only the name.
type names struct {
	source NameSource

	mu       sync.Mutex
	clusters map[string]string
	users    map[string]string
	changes  int // of clusters: what was read before one is not kept
}

func newNames(source NameSource) *names { return &names{source: source, users: map[string]string{}} }

// heard forgets what an event says may have changed.
func (n *names) heard(e event.Event) {
	if e.Kind != event.ClusterChanged {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clusters = nil
	n.changes++
}

func (n *names) cluster(ctx context.Context, id string) string {
	if id == "" {
		return ""
	}
	n.mu.Lock()
	name, known := n.clusters[id]
	changes := n.changes
	n.mu.Unlock()
	if known {
		return name
	}
	ctx, cancel := context.WithTimeout(ctx, namesFor)
	defer cancel()
	all, err := n.source.ClusterNames(ctx)
	if err != nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changes == changes {
		n.clusters = all
	}
	return all[id]
}

func (n *names) user(ctx context.Context, id string) string {
	if id == "" || id == "system" {
		return ""
	}
	n.mu.Lock()
	name, known := n.users[id]
	n.mu.Unlock()
	if known {
		return name
	}
	ctx, cancel := context.WithTimeout(ctx, namesFor)
	defer cancel()
	u, err := n.source.User(ctx, id)
	if err != nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users[id] = u.Name
	return u.Name
}

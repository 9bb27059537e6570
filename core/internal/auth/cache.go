package auth

import (
	"sync"
	"time"
)

const (
	cacheFor = time.Second
	cacheMax = 1000
)

// cache remembers rows for a second. With several replicas a revocation takes that long to reach the others.
type cache struct {
	mu   sync.Mutex
	rows map[string]cached
}

type cached struct {
	key   APIKey
	user  User
	until time.Time
}

func (c *cache) get(prefix string, now time.Time) (APIKey, User, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.rows[prefix]
	return e.key, e.user, ok && now.Before(e.until)
}

func (c *cache) put(prefix string, k APIKey, u User, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rows == nil || len(c.rows) >= cacheMax {
		c.rows = map[string]cached{}
	}
	c.rows[prefix] = cached{key: k, user: u, until: now.Add(cacheFor)}
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = nil
}

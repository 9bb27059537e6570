package plugin

import (
	"slices"
	"strings"
	"sync"
)

const (
	// minSecret is the shortest text that is worth hiding; hiding shorter ones would make logs unreadable.
	minSecret = 4
	// minSecretLine is the same for the lines of a secret of several lines, such as a kubeconfig.
	minSecretLine = 12
	// maxSecrets bounds what one redactor remembers; the oldest are forgotten.
	maxSecrets = 4096

	hidden = "[redacted]"
)

// redactor hides the secrets that it was told of. Safe for concurrent use.
type redactor struct {
	mu       sync.RWMutex
	order    []string
	known    map[string]bool
	replacer *strings.Replacer // nil: to be built
}

// add remembers secrets.
func (r *redactor) add(secrets ...string) {
	for _, s := range secrets {
		r.addOne(s, minSecret)
		if !strings.Contains(s, "\n") {
			continue
		}
		for line := range strings.Lines(s) {
			r.addOne(strings.TrimSpace(line), minSecretLine)
		}
	}
}

// forget drops everything.
func (r *redactor) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.order, r.known, r.replacer = nil, nil, nil
}

func (r *redactor) addOne(s string, least int) {
	if len(s) < least {
		return
	}
	r.mu.RLock()
	known := r.known[s]
	r.mu.RUnlock()
	if known {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[string]bool{}
	}
	r.known[s] = true
	r.order = append(r.order, s)
	if len(r.order) > maxSecrets {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
	r.replacer = nil
}

// clean returns the text without the secrets.
func (r *redactor) clean(text string) string {
	r.mu.RLock()
	rep, none := r.replacer, len(r.order) == 0
	r.mu.RUnlock()
	if none {
		return text
	}
	if rep == nil {
		rep = r.build()
	}
	return rep.Replace(text)
}

func (r *redactor) build() *strings.Replacer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.replacer == nil {
		// Longest first, so that a secret that begins with another one goes as a whole.
		byLength := slices.Clone(r.order)
		slices.SortStableFunc(byLength, func(a, b string) int { return len(b) - len(a) })
		pairs := make([]string, 0, 2*len(byLength))
		for _, s := range byLength {
			pairs = append(pairs, s, hidden)
		}
		r.replacer = strings.NewReplacer(pairs...)
	}
	return r.replacer
}

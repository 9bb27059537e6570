package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// shelf keeps rows in memory.
type shelf struct {
	users map[string]User
	keys  map[string]APIKey
	reads int
}

func newShelf() *shelf { return &shelf{users: map[string]User{}, keys: map[string]APIKey{}} }

func (s *shelf) User(_ context.Context, id string) (User, error) {
	for _, u := range s.users {
		if u.ID == id {
			return u, nil
		}
	}
	return User{}, ErrNotFound
}

func (s *shelf) UserByName(_ context.Context, name string) (User, error) {
	u, ok := s.users[name]
	if !ok {
		return u, ErrNotFound
	}
	return u, nil
}

func (s *shelf) CreateUser(_ context.Context, u User) (User, error) {
	s.users[u.Name] = u
	return u, nil
}

func (s *shelf) APIKeyByPrefix(_ context.Context, prefix string) (APIKey, error) {
	s.reads++
	k, ok := s.keys[prefix]
	if !ok {
		return k, ErrNotFound
	}
	return k, nil
}

func (s *shelf) CreateAPIKey(_ context.Context, k APIKey) (APIKey, error) {
	s.keys[k.Prefix] = k
	return k, nil
}

func (s *shelf) APIKeys(_ context.Context, userID string) (all []APIKey, _ error) {
	for _, k := range s.keys {
		if k.UserID == userID {
			all = append(all, k)
		}
	}
	return all, nil
}

func TestBootstrap(t *testing.T) {
	store := newShelf()
	s := NewService(store)
	var key string
	save := func(k string) error { key = k; return nil }
	if made, err := s.Bootstrap(t.Context(), save); !made || err != nil {
		t.Fatal(made, err)
	}
	p, err := s.Authenticate(t.Context(), key)
	if err != nil || !p.Admin || p.Name != AdminName {
		t.Fatalf("%+v %v", p, err)
	}
	if !strings.HasPrefix(key, "ngf_") || len(key) < 50 {
		t.Error("an odd key")
	}
	for _, k := range store.keys {
		if strings.Contains(key, k.SecretHash) || strings.Contains(k.SecretHash, strings.Split(key, "_")[2]) {
			t.Error("the secret is stored")
		}
	}
	if made, err := s.Bootstrap(t.Context(), save); made || err != nil {
		t.Error("a second admin", made, err)
	}
	// A crash came between user and key: the next start makes the key.
	clear(store.keys)
	if made, err := s.Bootstrap(t.Context(), save); !made || err != nil || len(store.users) != 1 {
		t.Error(made, err, len(store.users))
	}
	// The key cannot be saved: no row, and the next start tries again.
	clear(store.keys)
	full := errors.New("disk full")
	if _, err := s.Bootstrap(t.Context(), func(string) error { return full }); !errors.Is(err, full) || len(store.keys) != 0 {
		t.Error(err, len(store.keys))
	}
}

func TestAuthenticate(t *testing.T) {
	store := newShelf()
	s := NewService(store)
	now := time.Now().UTC()
	s.now = func() time.Time { return now }
	store.users["eve"] = User{ID: "u", Name: "eve", Groups: []string{"g"}}
	expires := now.Add(time.Hour)
	key, row, err := s.Issue(t.Context(), "u", "k", &expires)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := s.Authenticate(t.Context(), key); err != nil || p.Name != "eve" || p.Admin || p.KeyID != row.ID {
		t.Fatalf("%+v %v", p, err)
	}
	for _, bad := range []string{"", "ngf_", "ngf_x_y", key + "x", key[:len(key)-1], strings.Replace(key, "ngf_", "abc_", 1), "ngf_" + row.Prefix + "_"} {
		if _, err := s.Authenticate(t.Context(), bad); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	reads := store.reads
	for range 10 {
		_, _ = s.Authenticate(t.Context(), key)
	}
	if store.reads > reads+1 {
		t.Error("each request reads the key")
	}
	row.RevokedAt = &now
	store.keys[row.Prefix] = row
	s.Forget()
	if _, err := s.Authenticate(t.Context(), key); !errors.Is(err, ErrUnauthenticated) {
		t.Error("a revoked key counts", err)
	}
	row.RevokedAt = nil
	store.keys[row.Prefix] = row
	s.Forget()
	now = now.Add(2 * time.Hour)
	if _, err := s.Authenticate(t.Context(), key); !errors.Is(err, ErrUnauthenticated) {
		t.Error("an expired key counts", err)
	}
}

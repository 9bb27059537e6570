package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Store is what the service reads and writes.
type Store interface {
	User(ctx context.Context, id string) (User, error)
	UserByName(ctx context.Context, name string) (User, error)
	CreateUser(ctx context.Context, u User) (User, error)
	APIKeyByPrefix(ctx context.Context, prefix string) (APIKey, error)
	CreateAPIKey(ctx context.Context, k APIKey) (APIKey, error)
	// APIKeys returns the keys of a user, also those that are revoked.
	APIKeys(ctx context.Context, userID string) ([]APIKey, error)
}

// Service makes and checks API keys. It is safe for concurrent use.
type Service struct {
	store Store
	now   func() time.Time
	cache cache
}

// NewService returns a service.
func NewService(store Store) *Service {
	return &Service{store: store, now: func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }}
}

const (
	scheme       = "ngf_"
	prefixLength = 8
)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return letters.EncodeToString(b)
}

// NewKey returns a fresh key and its row. The key is not kept anywhere.
func NewKey(userID, name string, expires *time.Time, now time.Time) (key string, row APIKey) {
	prefix, secret := random(5), random(32)
	return scheme + prefix + "_" + secret, APIKey{
		ID: uuid.Must(uuid.NewV7()).String(), UserID: userID, Name: name, Prefix: prefix, SecretHash: hash(secret),
		CreatedAt: now, ExpiresAt: expires,
	}
}

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// split takes a key apart; false: it has not the form of one.
func split(key string) (prefix, secret string, ok bool) {
	rest, ok := strings.CutPrefix(key, scheme)
	if !ok {
		return "", "", false
	}
	prefix, secret, ok = strings.Cut(rest, "_")
	return prefix, secret, ok && len(prefix) == prefixLength && secret != ""
}

// Authenticate returns who the key belongs to. ErrUnauthenticated: the key does not count; anything else is a failure of
// the database. What was found is remembered for a second, so that a burst of requests does not read the same rows again.
func (s *Service) Authenticate(ctx context.Context, key string) (Principal, error) {
	prefix, secret, ok := split(key)
	if !ok {
		return Principal{}, ErrUnauthenticated
	}
	now := s.now()
	row, user, cached := s.cache.get(prefix, now)
	if !cached {
		var err error
		row, err = s.store.APIKeyByPrefix(ctx, prefix)
		if errors.Is(err, ErrNotFound) {
			return Principal{}, ErrUnauthenticated
		}
		if err != nil {
			return Principal{}, fmt.Errorf("read API key %s: %w", prefix, err)
		}
		if user, err = s.store.User(ctx, row.UserID); err != nil {
			return Principal{}, fmt.Errorf("read the user of API key %s: %w", prefix, err)
		}
		s.cache.put(prefix, row, user, now)
	}
	if subtle.ConstantTimeCompare([]byte(hash(secret)), []byte(row.SecretHash)) != 1 {
		return Principal{}, ErrUnauthenticated
	}
	if row.RevokedAt != nil || (row.ExpiresAt != nil && !now.Before(*row.ExpiresAt)) {
		return Principal{}, ErrUnauthenticated
	}
	return Principal{UserID: user.ID, Name: user.Name, Groups: user.Groups, Admin: user.Admin, KeyID: row.ID}, nil
}

// Forget drops what is remembered, so that a revoked key is refused at once.
func (s *Service) Forget() { s.cache.clear() }

// Issue makes a key for a user and stores its row.
func (s *Service) Issue(ctx context.Context, userID, name string, expires *time.Time) (string, APIKey, error) {
	key, row := NewKey(userID, name, expires, s.now())
	row, err := s.store.CreateAPIKey(ctx, row)
	if err != nil {
		return "", APIKey{}, fmt.Errorf("store the API key: %w", err)
	}
	return key, row, nil
}

// AdminName is the name of the user that the first start makes.
const AdminName = "admin"

// Bootstrap makes the first admin and its key, or the key alone when a crash came between the two. made is false when both
// are there. save gets the key before its row is stored: a crash between leaves a useless key behind rather than an
// admin whose key nobody knows.
func (s *Service) Bootstrap(ctx context.Context, save func(key string) error) (made bool, err error) {
	u, err := s.store.UserByName(ctx, AdminName)
	switch {
	case errors.Is(err, ErrNotFound):
		u, err = s.store.CreateUser(ctx, User{ID: uuid.Must(uuid.NewV7()).String(), Name: AdminName, Admin: true, CreatedAt: s.now()})
		if errors.Is(err, ErrNameUsed) { // another server starts at the same time and makes the key as well
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("make user %q: %w", AdminName, err)
		}
	case err != nil:
		return false, fmt.Errorf("look for user %q: %w", AdminName, err)
	default:
		keys, err := s.store.APIKeys(ctx, u.ID)
		if err != nil {
			return false, fmt.Errorf("read the keys of user %q: %w", AdminName, err)
		}
		if len(keys) > 0 {
			return false, nil
		}
	}
	key, row := NewKey(u.ID, "made at the first start", nil, s.now())
	if err := save(key); err != nil {
		return false, fmt.Errorf("save the first admin key: %w", err)
	}
	if _, err := s.store.CreateAPIKey(ctx, row); err != nil {
		return false, fmt.Errorf("store the first admin key: %w", err)
	}
	return true, nil
}

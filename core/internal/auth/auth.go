// Package auth knows who calls: users, their API keys, and what a caller may do.
//
// An API key reads "ngf_<prefix>_<secret>". The prefix finds the row and may be shown; of the secret only a SHA-256 is
// kept. The secret has 256 random bits, so a fast hash is enough: there is nothing to guess.
package auth

import (
	"context"
	"errors"
	"time"
)

// User is a person or a program that calls the API.
type User struct {
	ID        string
	Name      string // unique
	Groups    []string
	Admin     bool
	CreatedAt time.Time
}

// APIKey is one key of a user, without its secret.
type APIKey struct {
	ID         string
	UserID     string
	Name       string // what it is for; free text
	Prefix     string // 8 characters, unique
	SecretHash string // SHA-256 of the secret, hex
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil: never
	RevokedAt  *time.Time // nil: not revoked
}

// Sentinel errors of the package; compare with errors.Is.
var (
	// ErrNotFound: no such user or key.
	ErrNotFound = errors.New("not found")
	// ErrNameUsed: another user has that name.
	ErrNameUsed = errors.New("user name is in use")
	// ErrUnauthenticated: no key, or one that is wrong, expired or revoked. Which of these is not told.
	ErrUnauthenticated = errors.New("the API key is missing, wrong, expired or revoked")
)

// Principal is the caller of one request.
type Principal struct {
	UserID string
	Name   string
	Groups []string
	Admin  bool
	KeyID  string // of the API key; empty: not by key
}

type principalKey struct{}

// With returns a context that carries the caller.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// From returns the caller of the request that ctx belongs to; false: nobody is known.
func From(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(principalKey{}).(Principal)
	return p, ok
}

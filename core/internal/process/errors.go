package process

import "errors"

// Sentinel errors of the package; compare with errors.Is.
var (
	// ErrNotFound: no such process, version or attempt, or not visible to the caller.
	ErrNotFound = errors.New("not found")
	// ErrKeyReused: the idempotency key was used in this project for another body.
	ErrKeyReused = errors.New("idempotency key was used for another submission")
	// ErrStale: the row changed since it was read; read it again.
	ErrStale = errors.New("changed meanwhile")
	// ErrPinned: the change would alter what never changes once it is set, such as the cluster of an attempt.
	ErrPinned = errors.New("fixed once it is set")
)

// ErrNoChange is returned by a change function that has nothing to change; nothing is written then.
var ErrNoChange = errors.New("no change")

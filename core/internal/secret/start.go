package secret

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Started is what Start did and found.
type Started struct {
	Created    bool     // the keyset's file is new
	Encrypted  int      // texts that were plain before
	Unreadable []string // whose secrets cannot be decrypted, for their rows were changed: "cluster" and its id, for one
}

// Start makes the keyset at the first start, refuses one that does not fit the database, and encrypts what is still plain.
// It may be interrupted and run again at any point.
func (b *Box) Start(ctx context.Context, s Store) (out Started, err error) {
	texts, known, err := look(ctx, s)
	if err != nil {
		return out, err
	}
	_, err = b.current()
	if errors.Is(err, ErrMissing) && len(known) == 0 && !slices.ContainsFunc(texts, Text.sealed) {
		if err := b.create(); err != nil {
			return out, err
		}
		out.Created = true
	}
	if err := b.fits(texts, known); err != nil {
		return out, err
	}
	for _, t := range texts {
		if t.sealed() {
			if _, err := b.Open(t.Place, t.Stored); err != nil {
				out.Unreadable = append(out.Unreadable, t.Of)
			}
			continue
		}
		if _, err := s.Reseal(ctx, t, func() (string, error) { return b.Seal(t.Place, []byte(t.Stored)) }); err != nil {
			return out, fmt.Errorf("encrypt the secret of %s: %w", t.Of, err)
		}
		out.Encrypted++
	}
	if out.Encrypted == 0 && len(known) > 0 {
		return out, nil
	}
	if err := s.Scrub(ctx); err != nil {
		return out, fmt.Errorf("remove what was not encrypted from the database's files: %w", err)
	}
	// Last of all: a stored fingerprint also says that no plain text is left in the files.
	return out, s.ChangeKeys(ctx, func([]Text) ([]string, error) {
		keys, err := b.current()
		if err != nil {
			return nil, err
		}
		return keys.fingerprints(), nil
	})
}

func (b *Box) create() error {
	keys, err := newKeyset()
	if err != nil {
		return err
	}
	return createFile(b.path, keys)
}

func look(ctx context.Context, s Store) (texts []Text, known []string, err error) {
	if known, err = s.Fingerprints(ctx); err != nil {
		return nil, nil, err
	}
	texts, err = s.Secrets(ctx)
	return texts, known, err
}

// fits compares the file with what the database relies on. The file may hold more: keys of a rotation that was
// interrupted.
func (b *Box) fits(texts []Text, known []string) error {
	keys, err := b.current()
	if errors.Is(err, ErrMissing) && (len(known) > 0 || slices.ContainsFunc(texts, Text.sealed)) {
		return fmt.Errorf("%w, and the database holds secrets that only it can decrypt; put the file back from its backup, or say in "+
			"secrets.keyset_file where it is; docs/operations/secrets.md says what to do when it is lost", err)
	}
	if err != nil {
		return err
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s lacks %s; put back the file that was in use with this database last, or say in secrets.keyset_file where it is",
			ErrWrong, b.path, fmt.Sprintf(format, args...))
	}
	has := keys.fingerprints()
	for _, f := range known {
		if !slices.Contains(has, f) {
			return wrong("the key with fingerprint %s", f)
		}
	}
	for _, t := range texts {
		if s, err := parse(t.Stored); err == nil && !keys.has(s.key) {
			return wrong("key %d, which the secret of %s needs", s.key, t.Of)
		}
	}
	return nil
}

// Status is how the keyset and the database stand to each other.
type Status struct {
	File       string   `json:"file"`
	Problem    string   `json:"problem,omitempty"` // why a server would refuse to start; empty: it would not
	Encrypted  bool     `json:"encrypted"`         // a server has encrypted the database
	Keys       []KeyUse `json:"keys"`
	Plain      []string `json:"plain"`      // whose secrets are not encrypted: "cluster" and its id, for one
	Unreadable []string `json:"unreadable"` // whose secrets cannot be decrypted: "cluster" and its id, for one
}

// KeyUse is a key and the number of texts that need it.
type KeyUse struct {
	Key
	Configs int `json:"configs"`
}

// Status looks and changes nothing.
func (b *Box) Status(ctx context.Context, s Store) (Status, error) {
	out := Status{File: b.path, Keys: []KeyUse{}, Plain: []string{}, Unreadable: []string{}}
	texts, known, err := look(ctx, s)
	if err != nil {
		return out, err
	}
	out.Encrypted = len(known) > 0
	if err := b.fits(texts, known); err != nil {
		out.Problem = err.Error()
	}
	if keys, err := b.current(); err == nil {
		n := used(texts)
		for _, key := range keys.keys {
			out.Keys = append(out.Keys, KeyUse{Key: key, Configs: n[key.ID]})
		}
	}
	for _, t := range texts {
		if !t.sealed() {
			out.Plain = append(out.Plain, t.Of)
		} else if _, err := b.Open(t.Place, t.Stored); err != nil {
			out.Unreadable = append(out.Unreadable, t.Of)
		}
	}
	return out, nil
}

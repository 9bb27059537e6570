package secret

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// errNotStarted: there is nothing to rotate before a server has encrypted the database.
var errNotStarted = errors.New("the database is not encrypted yet: start the server once")

// rotatePasses bounds how often texts that changed meanwhile are looked for. What a server seals after the new key is
// in the file has that key, so the second pass finds nothing.
const rotatePasses = 10

// Rotation is what Rotate did.
type Rotation struct {
	Primary    Key      `json:"primary"`
	Encrypted  int      `json:"encrypted"`  // texts that were encrypted anew
	Dropped    []Key    `json:"dropped"`    // keys that are no longer in the file
	Unreadable []string `json:"unreadable"` // whose secrets cannot be decrypted: "cluster" and its id, for one; their keys stay
}

// Rotate makes a new primary key and encrypts every text anew with it, also beside a running server; with dropOld, keys
// that no text needs any more are removed from the file. Interrupted at any point it loses nothing and may be run again.
func (b *Box) Rotate(ctx context.Context, s Store, dropOld bool) (Rotation, error) {
	out := Rotation{Dropped: []Key{}, Unreadable: []string{}}
	texts, known, err := look(ctx, s)
	if err != nil {
		return out, err
	}
	if len(known) == 0 {
		return out, errNotStarted
	}
	if err := b.fits(texts, known); err != nil {
		return out, err
	}
	// The file first: the database never relies on a key that is not in it.
	err = s.ChangeKeys(ctx, func([]Text) ([]string, error) {
		_, keys, err := b.change((*keyset).withNewPrimary)
		if err != nil {
			return nil, err
		}
		out.Primary = keys.primary()
		return keys.fingerprints(), nil
	})
	if err == nil {
		err = b.reseal(ctx, s, &out)
	}
	if err == nil && dropOld {
		err = b.drop(ctx, s, &out)
	}
	return out, err
}

func (b *Box) reseal(ctx context.Context, s Store, out *Rotation) error {
	for range rotatePasses {
		texts, err := s.Secrets(ctx)
		if err != nil {
			return err
		}
		keys, err := b.current()
		if err != nil {
			return err
		}
		stale := false
		for _, t := range texts {
			if sealed, err := parse(t.Stored); err == nil && sealed.key == keys.primary().ID || slices.Contains(out.Unreadable, t.Of) {
				continue
			}
			plain, err := b.Open(t.Place, t.Stored)
			if errors.Is(err, ErrUnreadable) {
				out.Unreadable = append(out.Unreadable, t.Of)
				continue
			}
			if err != nil {
				return err
			}
			stale = true
			done, err := s.Reseal(ctx, t, func() (string, error) { return b.Seal(t.Place, plain) })
			if err != nil {
				return fmt.Errorf("encrypt the secret of %s anew: %w", t.Of, err)
			}
			if done {
				out.Encrypted++
			}
		}
		if !stale {
			return nil
		}
	}
	return errors.New("the configs change all the time: run it again")
}

// drop takes two steps: the database stops relying on the old keys, then the file loses them. Each looks for itself which
// keys are used.
func (b *Box) drop(ctx context.Context, s Store, out *Rotation) error {
	err := s.ChangeKeys(ctx, func(texts []Text) ([]string, error) {
		keys, err := b.current()
		if err != nil {
			return nil, err
		}
		if keys, err = keys.only(used(texts)); err != nil {
			return nil, err
		}
		return keys.fingerprints(), nil
	})
	if err != nil {
		return err
	}
	return s.ChangeKeys(ctx, func(texts []Text) ([]string, error) {
		before, after, err := b.change(func(k *keyset) (*keyset, error) { return k.only(used(texts)) })
		if err != nil {
			return nil, err
		}
		for _, key := range before.keys {
			if !after.has(key.ID) {
				out.Dropped = append(out.Dropped, key)
			}
		}
		return after.fingerprints(), nil
	})
}

// change replaces the keys in the file. It runs within ChangeKeys, for only one process may do so at a time.
func (b *Box) change(next func(*keyset) (*keyset, error)) (before, after *keyset, err error) {
	if before, err = b.current(); err != nil {
		return nil, nil, err
	}
	if after, err = next(before); err != nil {
		return nil, nil, err
	}
	return before, after, replaceFile(b.path, after)
}

// used counts the texts by the key that they need.
func used(texts []Text) map[uint32]int {
	n := map[uint32]int{}
	for _, t := range texts {
		if s, err := parse(t.Stored); err == nil {
			n[s.key]++
		}
	}
	return n
}

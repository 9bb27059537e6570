// Package secret keeps provider configs and the credentials of storage backends unreadable in the database: they are
// encrypted with a Tink keyset that lies in a file outside of it.
//
// A sealed text is bound to its place, so one that is copied to another row does not open there. Whoever seals must hold
// off the removal of keys meanwhile: see Store. The file is read again when it has changed, so a rotation by another
// process reaches a running server.
package secret

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
)

// Sentinel errors of the package; compare with errors.Is.
var (
	// ErrMissing: the keyset's file is not there.
	ErrMissing = errors.New("the keyset is missing")
	// ErrWrong: the file holds another keyset than the one of the database, or an old state of it.
	ErrWrong = errors.New("the keyset is not the one of this database")
	// ErrUnreadable: a sealed text does not open.
	ErrUnreadable = errors.New("it cannot be decrypted")
)

// Text is a secret as the database has it.
type Text struct {
	Of     string // such as "cluster" and its id
	Place  string // what it is bound to
	Stored string
}

// Store is the database. It holds no text that is empty of secrets.
type Store interface {
	Secrets(ctx context.Context) ([]Text, error)
	// Reseal puts what seal returns in the place of a text, unless that has changed: then it says false.
	Reseal(ctx context.Context, old Text, seal func() (string, error)) (bool, error)
	// ChangeKeys calls change while nothing is sealed in any process, and then stores the fingerprints it returns. The
	// change may run again.
	ChangeKeys(ctx context.Context, change func([]Text) (fingerprints []string, err error)) error
	// Fingerprints are those of the keys that the database relies on; none: it was never encrypted.
	Fingerprints(ctx context.Context) ([]string, error)
	// Scrub removes what was overwritten and deleted from the database's files.
	Scrub(ctx context.Context) error
}

// Box seals and opens with the keyset in a file. It is safe for concurrent use.
type Box struct {
	path string

	mu   sync.Mutex
	keys *keyset // nil: not read yet
	seen os.FileInfo
}

// NewBox returns the box of a keyset's file, which is read when it is needed.
func NewBox(path string) *Box { return &Box{path: path} }

// A sealed text is the version, the keyed hash and the ciphertext. No JSON object begins like it.
const version = "v1."

func (t Text) sealed() bool { return strings.HasPrefix(t.Stored, version) }

// Seal encrypts a text with the primary key of the file as it is now.
func (b *Box) Seal(place string, plain []byte) (string, error) {
	keys, err := b.current()
	if err != nil {
		return "", err
	}
	ciphertext, err := keys.aead.Encrypt(plain, []byte(place))
	if err != nil {
		return "", fmt.Errorf("encrypt: %w", err)
	}
	hash := keyedHash(keys.hashKeys[keys.primary().ID], place, plain)
	encode := base64.RawStdEncoding.EncodeToString
	return version + encode(hash) + "." + encode(ciphertext), nil
}

// Open decrypts what Seal made for this place. Nothing else opens.
func (b *Box) Open(place, sealed string) ([]byte, error) {
	keys, s, err := b.keysOf(sealed)
	if err != nil {
		return nil, err
	}
	plain, err := keys.aead.Decrypt(s.ciphertext, []byte(place))
	if err != nil {
		return nil, fmt.Errorf("%w: it was changed, or comes from another row", ErrUnreadable)
	}
	return plain, nil
}

// Same says by the keyed hash whether a sealed text is this one.
func (b *Box) Same(place, sealed string, plain []byte) bool {
	keys, s, err := b.keysOf(sealed)
	return err == nil && hmac.Equal(s.hash, keyedHash(keys.hashKeys[s.key], place, plain))
}

// keysOf parses a sealed text and returns the keys, its own among them.
func (b *Box) keysOf(text string) (*keyset, sealed, error) {
	s, err := parse(text)
	if err != nil {
		return nil, s, err
	}
	b.mu.Lock()
	keys := b.keys
	b.mu.Unlock()
	if keys == nil || !keys.has(s.key) {
		if keys, err = b.current(); err != nil {
			return nil, s, err
		}
	}
	if !keys.has(s.key) {
		return nil, s, fmt.Errorf("%w: it needs key %d, which %s does not hold", ErrUnreadable, s.key, b.path)
	}
	return keys, s, nil
}

// current returns the keys in the file as it is now. Without the file nothing may be sealed: it would be lost.
func (b *Box) current() (*keyset, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	info, err := os.Stat(b.path)
	if err == nil && b.seen != nil && os.SameFile(info, b.seen) && info.ModTime().Equal(b.seen.ModTime()) && info.Size() == b.seen.Size() {
		return b.keys, nil
	}
	keys, seen, err := readFile(b.path)
	if err != nil {
		return nil, err
	}
	b.keys, b.seen = keys, seen
	return keys, nil
}

type sealed struct {
	key        uint32
	hash       []byte
	ciphertext []byte
}

func parse(text string) (s sealed, err error) {
	rest, ok := strings.CutPrefix(text, version)
	hash, ciphertext, split := strings.Cut(rest, ".")
	if !ok || !split {
		return s, fmt.Errorf("%w: it is not encrypted", ErrUnreadable)
	}
	if s.hash, err = base64.RawStdEncoding.DecodeString(hash); err == nil {
		s.ciphertext, err = base64.RawStdEncoding.DecodeString(ciphertext)
	}
	// Tink's prefix: a byte 1, then the id of the key.
	if err != nil || len(s.ciphertext) < 5 || s.ciphertext[0] != 1 {
		return s, fmt.Errorf("%w: it is damaged", ErrUnreadable)
	}
	s.key = binary.BigEndian.Uint32(s.ciphertext[1:])
	return s, nil
}

// keyedHash does not tell whether two rows hold the same: their places differ.
func keyedHash(key []byte, place string, plain []byte) []byte {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%d:%s", len(place), place)
	h.Write(plain)
	return h.Sum(nil)
}

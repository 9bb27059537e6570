package secret

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	tinkkeyset "github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// Key is what may be said of a key.
type Key struct {
	ID      uint32 `json:"id"`
	Primary bool   `json:"primary"` // it seals; the others only open
	// Fingerprint follows from the key and does not tell it.
	Fingerprint string `json:"fingerprint"`
}

// keyset is a Tink keyset and what follows from it. It never changes.
type keyset struct {
	handle   *tinkkeyset.Handle
	aead     tink.AEAD
	keys     []Key // the oldest first
	hashKeys map[uint32][]byte
}

func newKeyset() (*keyset, error) {
	h, err := tinkkeyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	return keysetOf(h)
}

// parseKeyset reads Tink's JSON. Its error repeats nothing of the text.
func parseKeyset(text []byte) (*keyset, error) {
	h, err := insecurecleartextkeyset.Read(tinkkeyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		return nil, errors.New("is no Tink keyset in JSON")
	}
	return keysetOf(h)
}

func keysetOf(h *tinkkeyset.Handle) (_ *keyset, err error) {
	k := &keyset{handle: h, hashKeys: map[uint32][]byte{}}
	if k.aead, err = aead.New(h); err != nil {
		return nil, errors.New("holds no keys for authenticated encryption (AEAD)")
	}
	material := insecurecleartextkeyset.KeysetMaterial(h)
	for _, m := range material.Key {
		if m.Status != tinkpb.KeyStatusType_ENABLED {
			continue
		}
		if m.OutputPrefixType != tinkpb.OutputPrefixType_TINK {
			return nil, fmt.Errorf("holds key %d without Tink's prefix", m.KeyId)
		}
		// The hash has a key of its own, which comes and goes with the one it is derived from.
		derive := func(use string, size int) []byte {
			out, e := hkdf.Key(sha256.New, m.KeyData.Value, nil, "nagelfluh "+use, size)
			err = errors.Join(err, e)
			return out
		}
		k.hashKeys[m.KeyId] = derive("keyed hash", 32)
		k.keys = append(k.keys, Key{ID: m.KeyId, Primary: m.KeyId == material.PrimaryKeyId, Fingerprint: hex.EncodeToString(derive("fingerprint", 8))})
	}
	return k, err
}

func (k *keyset) has(id uint32) bool { return k.hashKeys[id] != nil }

func (k *keyset) primary() Key {
	return k.keys[slices.IndexFunc(k.keys, func(key Key) bool { return key.Primary })] // Tink wants one
}

func (k *keyset) fingerprints() []string {
	var out []string
	for _, key := range k.keys {
		out = append(out, key.Fingerprint)
	}
	return out
}

// withNewPrimary returns these keys and a new one that seals from now on.
func (k *keyset) withNewPrimary() (*keyset, error) {
	m := tinkkeyset.NewManagerFromHandle(k.handle)
	id, err := m.Add(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	if err := m.SetPrimary(id); err != nil {
		return nil, err
	}
	return keysetFrom(m)
}

// only returns the primary key and those that are used.
func (k *keyset) only(used map[uint32]int) (*keyset, error) {
	m := tinkkeyset.NewManagerFromHandle(k.handle)
	for _, key := range k.keys {
		if !key.Primary && used[key.ID] == 0 {
			if err := m.Delete(key.ID); err != nil {
				return nil, err
			}
		}
	}
	return keysetFrom(m)
}

func keysetFrom(m *tinkkeyset.Manager) (*keyset, error) {
	h, err := m.Handle()
	if err != nil {
		return nil, err
	}
	return keysetOf(h)
}

func (k *keyset) text() ([]byte, error) {
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(k.handle, tinkkeyset.NewJSONWriter(&b)); err != nil {
		return nil, err
	}
	return append(bytes.TrimSpace(b.Bytes()), '\n'), nil
}

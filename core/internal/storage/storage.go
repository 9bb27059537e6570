// Package storage holds the places where projects keep their data, and what a Job needs to reach its project's one.
//
// A backend is a bucket, or a part of one, behind the S3 protocol. Every project has a prefix of its own in it, which
// follows from its id alone, so that a Job finds the same data on whichever cluster it lands.
package storage

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// S3 is the one type of backend there is.
const S3 = "s3"

// Backend is a place where projects keep their data.
type Backend struct {
	ID        string
	Name      string // unique
	Type      string // S3
	Endpoint  string // URL without a path, such as https://s3.example.org
	Region    string
	Bucket    string
	Prefix    string // without slashes at its ends; empty: the whole bucket
	PathStyle bool   // https://endpoint/bucket instead of https://bucket.endpoint
	Labels    map[string]string
	// Credentials are the zero value when those that are stored cannot be decrypted.
	Credentials Credentials
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Revision    int64 // counts the changes
}

// Credentials open a backend. They show in no text: whatever prints them gets a mask.
type Credentials struct {
	AccessKeyID     string `json:"access_key_id"`
	SecretAccessKey string `json:"secret_access_key"`
	SessionToken    string `json:"session_token,omitempty"`
}

// String masks.
func (Credentials) String() string { return "***" }

// GoString masks.
func (Credentials) GoString() string { return "***" }

// Encode returns what is sealed and stored.
func (c Credentials) Encode() []byte {
	type plain Credentials
	raw, err := json.Marshal(plain(c))
	if err != nil {
		panic("storage: " + err.Error()) // strings always encode
	}
	return raw
}

// Decode reads what Encode wrote.
func Decode(raw []byte) (c Credentials, err error) {
	if err := json.Unmarshal(raw, &c); err != nil {
		return Credentials{}, errors.New("the stored credentials are damaged") // the cause would quote them
	}
	return c, nil
}

// PrefixOf is where the data of a project lies in the bucket; it ends with a slash.
func (b Backend) PrefixOf(projectID string) string {
	return strings.TrimPrefix(b.Prefix+"/", "/") + projectID + "/"
}

// Sentinel errors of the package; compare with errors.Is.
var (
	ErrNotFound = errors.New("storage backend not found")
	ErrNameUsed = errors.New("storage backend name is in use")
	ErrStale    = errors.New("storage backend changed meanwhile")
)

// InUse is the error of a change that projects stand in the way of.
type InUse struct {
	Name     string
	Projects int
}

func (e *InUse) Error() string {
	return fmt.Sprintf("storage backend %q is used by %d projects", e.Name, e.Projects)
}

// Package problem is the one form in which the core tells a caller that a request is wrong: a stable code, a safe
// sentence, and the faults by field. Everything else that goes wrong is an internal error, whose text no caller sees.
package problem

import (
	"errors"
	"fmt"
	"strings"
)

// Code is a stable word for programs. docs/api.md lists every code with its HTTP status; a test holds the two equal.
type Code string

// The codes of the API.
const (
	MalformedJSON        Code = "malformed_json"
	BadParameter         Code = "bad_parameter"
	Unauthenticated      Code = "unauthenticated"
	Forbidden            Code = "forbidden"
	NotFound             Code = "not_found"
	RouteNotFound        Code = "route_not_found"
	MethodNotAllowed     Code = "method_not_allowed"
	NameInUse            Code = "name_in_use"
	ClusterInUse         Code = "cluster_in_use"
	StorageInUse         Code = "storage_in_use"
	IdentityChanged      Code = "identity_changed"
	IdentityInUse        Code = "identity_in_use"
	Stale                Code = "stale"
	TooLarge             Code = "too_large"
	UnsupportedMedia     Code = "unsupported_media_type"
	Invalid              Code = "invalid"
	UnknownCluster       Code = "unknown_cluster"
	UnknownClusterType   Code = "unknown_cluster_type"
	UnknownStorage       Code = "unknown_storage"
	ConnectionTestFailed Code = "connection_test_failed"
	IdempotencyKeyReused Code = "idempotency_key_reused"
	ProviderUnavailable  Code = "provider_unavailable"
	ChoicesUnavailable   Code = "choices_unavailable"
	StorageUndecided     Code = "storage_undecided"
	LogsUnavailable      Code = "logs_unavailable"
	NoLeader             Code = "no_leader"
	Timeout              Code = "timeout"
	Internal             Code = "internal"
)

// Field is one fault of a request.
type Field struct {
	Field   string // path such as "spec.limits[nvidia.com/gpu]" or "items[3].name"
	Message string // what is wrong and what would be right
}

// Error is a refusal that the caller may read in full.
type Error struct {
	Code    Code
	Detail  string // one sentence; may be empty when Fields says it all
	Fields  []Field
	Details map[string]any // figures that belong to the code; nil: none
	Err     error          // the cause, for the log alone; nil: none
}

// New returns a refusal with a sentence.
func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// InField returns a refusal for one field.
func InField(code Code, field, format string, args ...any) *Error {
	return Fields(code, []Field{{Field: field, Message: fmt.Sprintf(format, args...)}})
}

// Fields returns a refusal for several fields.
func Fields(code Code, fields []Field) *Error {
	e := &Error{Code: code, Fields: fields}
	switch len(fields) {
	case 0:
	case 1:
		e.Detail = fields[0].Field + ": " + fields[0].Message
	default:
		e.Detail = fmt.Sprintf("%d fields are wrong; the first: %s: %s", len(fields), fields[0].Field, fields[0].Message)
	}
	return e
}

// Because adds the cause, which only the log shows.
func (e *Error) Because(err error) *Error {
	e.Err = err
	return e
}

// With adds a figure.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = value
	return e
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is says whether err is a refusal with the code.
func Is(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

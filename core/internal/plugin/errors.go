package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sentinel errors of the package; compare with errors.Is.
var (
	// ErrInvalidConfig: a config was refused; errors.As with *InvalidConfig gives the fields.
	ErrInvalidConfig = errors.New("config is not valid")
	// ErrNotServed: no plugin serves the cluster type.
	ErrNotServed = errors.New("cluster type is not served")
	// ErrNotRunning: the plugin is known but not running now.
	ErrNotRunning = errors.New("plugin is not running")
	// ErrUnknownPlugin: there is no plugin of that name.
	ErrUnknownPlugin = errors.New("no such plugin")
)

// FieldError is one thing wrong with one field of a JSON document.
type FieldError struct {
	Path    string // JSON pointer (RFC 6901); empty: the whole document
	Message string // one sentence without the value
}

// InvalidConfig is a config that was refused, with what is wrong. It is ErrInvalidConfig for errors.Is.
type InvalidConfig struct {
	Fields []FieldError // never empty
}

// Error lists the fields.
func (e *InvalidConfig) Error() string {
	parts := make([]string, 0, len(e.Fields))
	for _, f := range e.Fields {
		if f.Path == "" {
			parts = append(parts, f.Message)
			continue
		}
		parts = append(parts, f.Path+": "+f.Message)
	}
	return ErrInvalidConfig.Error() + ": " + strings.Join(parts, "; ")
}

// Is makes an InvalidConfig an ErrInvalidConfig.
func (e *InvalidConfig) Is(target error) bool { return target == ErrInvalidConfig }

// Error is what went wrong with a plugin. It prints as "selector(NAME): message", and so it is never wrapped in another
// mention of the plugin. The message holds no secret that the host knows of.
type Error struct {
	Kind   Kind
	Plugin string
	// Temporary says that the same call may work later without anyone doing anything.
	Temporary bool
	message   string
	err       error
}

// Error names the plugin once.
func (e *Error) Error() string { return fmt.Sprintf("%s(%s): %s", e.Kind, e.Plugin, e.message) }

// Unwrap gives the sentinel, the context error or the *InvalidConfig behind the error, or nil.
func (e *Error) Unwrap() error { return e.err }

// errorf makes an Error of this plugin. Cause may be nil; it is only for errors.Is and errors.As.
func (s *slot) errorf(temporary bool, cause error, format string, args ...any) *Error {
	return &Error{
		Kind: s.kind, Plugin: s.name, Temporary: temporary,
		message: s.redact.clean(fmt.Sprintf(format, args...)), err: cause,
	}
}

// callError turns what gRPC says about a failed call into an Error. Ctx is the caller's, call is the one that had the
// plugin's deadline.
func (s *slot) callError(ctx, call context.Context, in *instance, method string, limit time.Duration, err error) *Error {
	if ctx.Err() != nil {
		return s.errorf(true, ctx.Err(), "%s was given up by the caller: %v", method, ctx.Err())
	}
	st, isStatus := status.FromError(err)
	if !isStatus { // the answer itself was wrong
		return s.errorf(false, nil, "%s: %v", method, err)
	}
	switch st.Code() {
	case codes.Unavailable, codes.Canceled:
		// The connection breaks a moment before the end of the process is known, and the end is the better reason.
		if await(in.proc.done, endGrace) {
			return s.errorf(true, ErrNotRunning, "the process ended during %s: %s", method, in.proc.epitaph())
		}
	case codes.DeadlineExceeded:
		// The plugin's side may see the deadline a moment before ours; one of the plugin's own is another matter.
		if ends, ok := call.Deadline(); ok && time.Until(ends) < deadlineSkew {
			if callers, ok := ctx.Deadline(); ok && !callers.After(ends) {
				return s.errorf(true, context.DeadlineExceeded, "%s gave no answer before the caller's deadline", method)
			}
			return s.errorf(true, context.DeadlineExceeded, "%s gave no answer within %s", method, limit)
		}
	case codes.InvalidArgument:
		bad := &InvalidConfig{Fields: []FieldError{{Message: s.redact.clean(cut(st.Message(), maxReason))}}}
		return s.errorf(false, bad, "%s: %s", method, cut(st.Message(), maxReason))
	}
	temporary := st.Code() == codes.Unavailable || st.Code() == codes.Canceled || st.Code() == codes.DeadlineExceeded
	return s.errorf(temporary, nil, "%s: %s: %s", method, st.Code(), cut(st.Message(), maxReason))
}

// deadlineSkew is how much earlier than ours a deadline of the other side may end the same call.
const deadlineSkew = 100 * time.Millisecond

// maxReason bounds texts that plugins give, in bytes.
const maxReason = 2000

// cut shortens a text to at most n bytes, at a rune boundary, and marks the cut.
func cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	end := 0
	for i := range s {
		if i > n {
			break
		}
		end = i
	}
	return s[:end] + "…"
}

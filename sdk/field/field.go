// Package field says what is wrong with one field of a JSON document, so that a form can show it beside that field.
package field

import (
	"fmt"
	"strings"
)

// Error is one thing wrong with one field.
type Error struct {
	// Path is an RFC 6901 JSON pointer such as "/servers/0/url". Empty: the document as a whole.
	Path string
	// Message is one sentence: what is wrong and what to do about it. Never the value itself, which may be a secret.
	Message string
}

// Error returns the path and the message.
func (e Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Errors is what is wrong with one document. It is an error, so a plugin returns it from Configure, ValidateConfig,
// Connect or CompleteRegistration as it is. An empty list is not an error: return [Errors.Err] rather than the list.
type Errors []Error

// Errorf returns a list of one. The path is a JSON pointer; see [Pointer].
func Errorf(path, format string, args ...any) Errors {
	return Errors{{Path: path, Message: fmt.Sprintf(format, args...)}}
}

// Add appends one more error.
func (e *Errors) Add(path, format string, args ...any) {
	*e = append(*e, Error{Path: path, Message: fmt.Sprintf(format, args...)})
}

// Err returns the list as an error, or nil when it is empty.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// Error joins the errors with semicolons.
func (e Errors) Error() string {
	parts := make([]string, len(e))
	for i, one := range e {
		parts[i] = one.Error()
	}
	return strings.Join(parts, "; ")
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer builds a JSON pointer from its unescaped parts.
func Pointer(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteByte('/')
		b.WriteString(escape.Replace(p))
	}
	return b.String()
}

// Package fault carries the class of an error from a plugin's author to the wire, so that authors import no gRPC.
package fault

import "google.golang.org/grpc/codes"

// Fault is an error with the status code under which it crosses the wire.
type Fault struct {
	Code codes.Code
	Err  error
}

// Error returns the error's own text.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns the error inside.
func (f *Fault) Unwrap() error { return f.Err }

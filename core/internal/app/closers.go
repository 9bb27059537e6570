package app

import (
	"errors"
	"slices"
)

// closers run in the reverse order of their adding. The zero value is ready. Not safe for concurrent use.
type closers struct{ list []func() error }

func (c *closers) add(f func() error) { c.list = append(c.list, f) }

// close runs all of them whatever the others return; a second call does nothing.
func (c *closers) close() error {
	var errs []error
	for _, f := range slices.Backward(c.list) {
		errs = append(errs, f())
	}
	c.list = nil
	return errors.Join(errs...)
}

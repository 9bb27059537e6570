//go:build !unix

package conformance

import "context"

// endsWithHost needs Unix processes.
func endsWithHost(context.Context, *suite) error { return skip("needs a Unix system") }

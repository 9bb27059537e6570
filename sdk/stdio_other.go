//go:build !unix

package sdk

import "os"

// takeStdout leaves the descriptor where it is; os.Stdout alone is redirected.
func takeStdout() (*os.File, error) { return os.Stdout, nil }

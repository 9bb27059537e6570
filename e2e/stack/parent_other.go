//go:build !linux

package stack

import "os/exec"

// dieWithParent does nothing where the system has no such thing.
func dieWithParent(*exec.Cmd) {}

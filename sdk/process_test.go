//go:build unix

package sdk_test

import (
	"os"
	"syscall"
)

var term os.Signal = syscall.SIGTERM

// gone says whether a process that is no child of ours has ended.
func gone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

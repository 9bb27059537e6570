//go:build unix

package sdk

import (
	"os"

	"golang.org/x/sys/unix"
)

// takeStdout moves the host's pipe to a descriptor of its own and makes descriptor 1 mean stderr, so that what a library
// opened on stdout before main, and every child process, prints there.
func takeStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(unix.Stdout), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.Dup2(unix.Stderr, unix.Stdout); err != nil {
		return nil, os.NewSyscallError("dup2", err)
	}
	return os.NewFile(uintptr(fd), "handshake"), nil
}

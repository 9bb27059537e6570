package plugin

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// maxSocketPath is the longest path of a Unix socket that every system takes, with the terminating zero left out.
const maxSocketPath = 103

const (
	socketRootPrefix = "ngf-"
	socketRootLock   = "lock"
)

// socketRoot is the private directory of all sockets of one host, locked for as long as the host lives.
type socketRoot struct {
	dir  string
	lock *os.File
}

// newSocketRoot makes the directory, and removes those that killed servers left.
func newSocketRoot(parent string) (*socketRoot, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	sweepSocketRoots(parent)
	dir, err := os.MkdirTemp(parent, socketRootPrefix) // 0700
	if err != nil {
		return nil, fmt.Errorf("no directory for the plugins' sockets: %w", err)
	}
	r := &socketRoot{dir: dir}
	// The number of the start and go-plugin's "plugin" with up to ten digits follow.
	if longest := len(filepath.Join(dir, "0000000", "plugin0000000000")); longest > maxSocketPath {
		r.remove()
		return nil, fmt.Errorf("the socket directory %s is too long: paths of sockets in it would have %d bytes and %d are allowed; set a shorter one",
			parent, longest, maxSocketPath)
	}
	// Locked before it has its name: who sweeps finds it without a lock file, or held.
	r.lock, err = os.CreateTemp(dir, socketRootLock)
	if err == nil {
		err = syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX)
	}
	if err == nil {
		err = os.Rename(r.lock.Name(), filepath.Join(dir, socketRootLock))
	}
	if err != nil {
		r.remove()
		return nil, fmt.Errorf("lock the directory of the plugins' sockets: %w", err)
	}
	return r, nil
}

func (r *socketRoot) remove() {
	os.RemoveAll(r.dir)
	if r.lock != nil {
		_ = r.lock.Close()
	}
}

// sweepSocketRoots removes the directories whose lock nobody holds. What cannot be removed is another user's.
func sweepSocketRoots(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, socketRootPrefix+"*", socketRootLock))
	for _, path := range locks {
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if err != nil {
			continue
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			os.RemoveAll(filepath.Dir(path)) // of a link, only the link
		}
		_ = f.Close()
	}
}

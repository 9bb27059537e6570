//go:build unix && !linux

package child

import "syscall"

// Attr returns the attributes of a process in a group of its own. There is no
// parent-death signal here: the pipe (see Spawner) and the reaper do that work.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

package child

import "syscall"

// Attr returns the attributes of a process in a group of its own that dies with
// the thread that starts it; start it through a Thread.
func Attr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

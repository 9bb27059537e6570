package stack

import (
	"os/exec"
	"runtime"
	"syscall"
)

// The signal that follows a parent's death follows the thread that started the child, so the main goroutine keeps its
// thread for the life of the program.
func init() { runtime.LockOSThread() }

// dieWithParent ends the child when this process is killed.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}

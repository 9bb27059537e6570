package child

import "runtime"

// Thread runs functions on one operating-system thread that lives as long as
// the process.
//
// Linux sends a child's parent-death signal when the *thread* that started it
// ends, not the process. The Go runtime ends threads as it likes, so whoever
// wants that signal to mean "my parent process died" starts all children here.
type Thread struct {
	calls chan func()
}

// NewThread starts the thread.
func NewThread() *Thread {
	t := &Thread{calls: make(chan func())}
	go func() {
		runtime.LockOSThread() // and never unlocked: see above
		for call := range t.calls {
			call()
		}
	}()
	return t
}

// Do runs f on the thread and waits for it.
func (t *Thread) Do(f func()) {
	done := make(chan struct{})
	t.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

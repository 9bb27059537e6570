//go:build failpoint

// Package failpoint lets tests stop the process at a named place.
//
// NAGELFLUH_FAILPOINT="name@3" kills the process (SIGKILL, as a power cut would) at the third hit of that name.
// NAGELFLUH_FAILPOINT_LIST=path appends the name of each hit to that file, so that a test can learn the names.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

var (
	target, limit = parse(os.Getenv("NAGELFLUH_FAILPOINT"))
	hits          atomic.Int64

	listMu sync.Mutex
	list   = os.Getenv("NAGELFLUH_FAILPOINT_LIST")
)

func parse(s string) (name string, n int64) {
	name, count, found := strings.Cut(s, "@")
	if !found {
		return name, 1
	}
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil || n < 1 {
		panic("NAGELFLUH_FAILPOINT: want name@n with n from 1, got " + s)
	}
	return name, n
}

// Hit marks a named place, such as "store.submit.before".
func Hit(name string) {
	if list != "" {
		record(name)
	}
	if name != target || hits.Add(1) != limit {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing after the failpoint may run
}

func record(name string) {
	listMu.Lock()
	defer listMu.Unlock()
	f, err := os.OpenFile(list, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(name + "\n")
}

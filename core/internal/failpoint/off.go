//go:build !failpoint

// Package failpoint lets tests stop the process at a named place. Without the build tag "failpoint" it does nothing.
package failpoint

// Hit marks a named place, such as "store.submit.before". It does nothing in an ordinary build.
func Hit(string) {}

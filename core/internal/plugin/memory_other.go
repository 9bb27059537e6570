//go:build !linux

package plugin

// residentBytes is not known cheaply on this system.
func residentBytes(int) int64 { return 0 }

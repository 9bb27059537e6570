package plugin

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"

	goplugin "github.com/hashicorp/go-plugin"
)

// checkPin compares the file with the operator's pin. The hash is made anew each time, because go-plugin's
// SecureConfig keeps the state of its hash between checks.
func checkPin(path string, pin []byte) *problem {
	if len(pin) == 0 {
		return nil
	}
	hash := sha256.New()
	ok, err := (&goplugin.SecureConfig{Checksum: pin, Hash: hash}).Check(path)
	if err != nil {
		return broken(fmt.Sprintf("%s cannot be read for its checksum: %v", path, err), "check the file's permissions")
	}
	if !ok {
		return refused(fmt.Sprintf("%s has the SHA-256 %s, but the configuration pins %s", path,
			hex.EncodeToString(hash.Sum(nil)), hex.EncodeToString(pin)),
			"install the pinned file, or change the pin after you have checked the new one")
	}
	return nil
}

// badArch is macOS's "bad CPU type in executable".
const badArch = syscall.Errno(86)

// unrunnable says in plain words why the system did not run a file, or returns nil when it is no fault of the file.
func unrunnable(path string, err error) *problem {
	switch {
	case errors.Is(err, syscall.ENOEXEC), runtime.GOOS == "darwin" && errors.Is(err, badArch):
		return formatProblem(path)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return broken(path+" may not be executed although its mode allows it; most likely its file system is mounted noexec",
			"move it to a file system that allows execution, or mount that one with exec")
	case errors.Is(err, syscall.ENOENT):
		return broken(path+" needs an interpreter or loader that is not on this machine",
			"install what its first line (or its ELF header) names, or build the plugin statically")
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.EINVAL):
		return broken(fmt.Sprintf("%s is no valid program: %v", path, err), "install it again")
	}
	return nil
}

// formatProblem looks into a file that the system did not recognise.
func formatProblem(path string) *problem {
	here := runtime.GOOS + "/" + runtime.GOARCH
	head := make([]byte, 64)
	f, err := os.Open(path)
	if err != nil {
		return broken(fmt.Sprintf("%s cannot be read: %v", path, err), "check its permissions")
	}
	defer f.Close()
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return broken(fmt.Sprintf("%s cannot be read: %v", path, err), "install it again")
	}
	head = head[:n]
	rebuild := "install the plugin that is built for " + here
	switch {
	case n == 0:
		return broken(path+" is empty", "install it again; a copy may have been cut short")
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		if n < 20 {
			return broken(path+" is cut short", "install it again")
		}
		machine := uint16(head[18]) | uint16(head[19])<<8
		if head[elf.EI_DATA] == byte(elf.ELFDATA2MSB) {
			machine = uint16(head[19]) | uint16(head[18])<<8
		}
		return broken(fmt.Sprintf("%s is an ELF program for %s; this machine is %s", path, elf.Machine(machine), here), rebuild)
	case isMachO(head):
		return broken(fmt.Sprintf("%s is a macOS program of another kind; this machine is %s", path, here), rebuild)
	case bytes.HasPrefix(head, []byte("MZ")):
		return broken(fmt.Sprintf("%s is a Windows program; this machine is %s", path, here), rebuild)
	}
	return broken(path+" is neither a program nor a script with a #! line", "begin a script with a line such as #!/bin/sh, or install the program itself")
}

func isMachO(head []byte) bool {
	for _, magic := range []string{"\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "\xca\xfe\xba\xbe", "\xfe\xed\xfa\xcf"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return false
}

package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// fileLimit is far above what hundreds of keys need.
const fileLimit = 1 << 20

// readFile reads a keyset that nobody but its owner can read, and says which state of the file it was.
func readFile(path string) (*keyset, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would hold up the start for ever
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: %s", ErrMissing, path)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the keyset: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("read the keyset: %w", err)
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("the keyset %s is no regular file", path)
	case info.Mode().Perm()&0o077 != 0:
		return nil, nil, fmt.Errorf("the keyset %s is open to others than its owner (mode %04o): chmod 600 it, and rotate the keys if somebody may have read it",
			path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, fileLimit))
	if err != nil {
		return nil, nil, fmt.Errorf("read the keyset: %w", err)
	}
	keys, err := parseKeyset(text)
	if err != nil {
		return nil, nil, fmt.Errorf("the keyset %s %w: put it back from its backup", path, err)
	}
	return keys, info, nil
}

// createFile writes a new keyset. A file that is there is never overwritten, and none is ever there in part.
func createFile(path string, keys *keyset) error { return writeFile(path, keys, os.Link) }

// replaceFile puts a keyset in the place of another, as one step.
func replaceFile(path string, keys *keyset) error {
	// A link stays one: what it names is replaced.
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("write the keyset: %w", err)
	}
	return writeFile(path, keys, os.Rename)
}

// writeFile writes beside the file and then calls publish to give that its name. It returns when both are on the disk.
func writeFile(path string, keys *keyset, publish func(from, to string) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the keyset: %w", err)
		}
	}()
	text, err := keys.text()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	removeLeftovers(dir)
	f, err := os.CreateTemp(dir, temporary) // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := publish(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// temporary is the name of a keyset that is being written: one that nobody gives to a copy of his own.
const temporary = ".keyset-*.nagelfluh-tmp"

// removeLeftovers removes what writers that were killed left: keys that somebody dropped must not live on in it. One that
// is being written is younger.
func removeLeftovers(dir string) {
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		if ours, _ := filepath.Match(temporary, f.Name()); !ours || !f.Type().IsRegular() {
			continue
		}
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > leftoverAge {
			_ = os.Remove(filepath.Join(dir, f.Name()))
		}
	}
}

// leftoverAge is far more than a write takes.
const leftoverAge = 10 * time.Second

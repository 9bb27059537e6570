package supervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// state is what a running supervisor leaves in its folder for other commands.
type state struct {
	PID     int    `json:"pid"`
	Address string `json:"address"` // of the control server, on loopback
	Token   string `json:"token"`   // that it asks for
}

// ErrNotRunning says that no supervisor uses the folder.
var ErrNotRunning = errors.New("no dev cluster is running there")

// DefaultDir is the folder that is used when none is named.
func DefaultDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "nagelfluh", "devcluster")
}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

func readState(dir string) (state, error) {
	var s state
	text, err := os.ReadFile(statePath(dir))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("%s: %w; start one with: devcluster up --dir %s", dir, ErrNotRunning, dir)
	}
	if err != nil {
		return s, fmt.Errorf("read the state in %s: %w", dir, err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s is damaged (%w): remove it", statePath(dir), err)
	}
	return s, nil
}

func writeState(dir string, s state) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	// Whole or not at all: others read it at any time.
	temporary := statePath(dir) + ".new"
	if err := os.WriteFile(temporary, text, 0o600); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return os.Rename(temporary, statePath(dir))
}

// lock takes the folder for this process. The kernel gives it back when the
// process ends, however it ends, so a killed supervisor never blocks the next.
func lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for dev clusters: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of %s: %w", dir, err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is in use by another devcluster: stop it with `devcluster down --dir %s` or give this one another --dir", dir, dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return file, nil
}

// marker is in every cluster's folder, so that sweep removes those only: --dir
// may name a folder in which other things live.
const marker = ".devcluster"

func clusterDir(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return "", fmt.Errorf("%s exists and is no dev cluster's folder: choose another --name or --dir", path)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("make the folder of cluster %s: %w", name, err)
	}
	return path, os.WriteFile(filepath.Join(path, marker), nil, 0o600)
}

// sweep removes what a killed supervisor left behind. Its processes have ended
// with it; only files are left.
func sweep(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*", marker))
	if err != nil {
		return fmt.Errorf("look for earlier clusters in %s: %w", dir, err)
	}
	for _, path := range found {
		if err := os.RemoveAll(filepath.Dir(path)); err != nil {
			return fmt.Errorf("remove a cluster of an earlier run: %w", err)
		}
	}
	if err := os.Remove(statePath(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the state of an earlier run: %w", err)
	}
	return nil
}

package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nagelfluh/nagelfluh/sdk/handshake"
)

// shelf is the plugin directories in the order in which they were given.
type shelf struct {
	dirs []shelfDir
}

// shelfDir is one plugin directory: as the operator wrote it, and with all links resolved.
type shelfDir struct {
	path string
	real string
}

// openShelf resolves the directories. One that does not exist is left out; one that is there twice counts once.
func openShelf(dirs []string) (shelf, error) {
	var s shelf
	for _, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return shelf{}, fmt.Errorf("plugin directory %q: %w", dir, err)
		}
		real, err := filepath.EvalSymlinks(abs)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return shelf{}, fmt.Errorf("plugin directory %s cannot be read: %w", abs, err)
		}
		info, err := os.Stat(real)
		if err != nil {
			return shelf{}, fmt.Errorf("plugin directory %s cannot be read: %w", abs, err)
		}
		if !info.IsDir() {
			return shelf{}, fmt.Errorf("plugin directory %s is a file; name the directory that holds it", abs)
		}
		if !slices.ContainsFunc(s.dirs, func(d shelfDir) bool { return d.real == real }) {
			s.dirs = append(s.dirs, shelfDir{path: abs, real: real})
		}
	}
	return s, nil
}

// kindOf reads the kind from a plugin's name; ok is false when the name is no plugin's.
func kindOf(name string) (kind Kind, ok bool) {
	switch {
	case !handshake.IsPluginName(name):
		return "", false
	case strings.HasPrefix(name, handshake.ProviderPrefix):
		return Provider, true
	default:
		return Selector, true
	}
}

// names lists every plugin of the directories, in order, with the paths under which it was found.
func (s shelf) names() (map[string][]string, error) {
	found := map[string][]string{}
	for _, dir := range s.dirs {
		entries, err := os.ReadDir(dir.real)
		if err != nil {
			return nil, fmt.Errorf("plugin directory %s cannot be read: %w", dir.path, err)
		}
		for _, entry := range entries {
			if _, ok := kindOf(entry.Name()); ok {
				found[entry.Name()] = append(found[entry.Name()], filepath.Join(dir.path, entry.Name()))
			}
		}
	}
	return found, nil
}

// find returns the path of a plugin's file, or "" when no directory holds it.
func (s shelf) find(name string) string {
	for _, dir := range s.dirs {
		path := filepath.Join(dir.path, name)
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	return ""
}

// file is a plugin's file as it was found.
type file struct {
	path string // as found
	real string // with all links resolved; what is run, and what a pin covers
	// mark changes when the file, what it links to, or the permission to use it may have changed.
	mark string
}

// problem says why a plugin is not started, until its file changes or an admin asks for another try.
type problem struct {
	state  State
	reason string
	remedy string
}

// Error is the reason with the remedy.
func (p *problem) Error() string { return p.reason + "; " + p.remedy }

func broken(reason, remedy string) *problem  { return &problem{Broken, reason, remedy} }
func refused(reason, remedy string) *problem { return &problem{Refused, reason, remedy} }

// writable are the permission bits with which others than the owner could swap a plugin.
const writable fs.FileMode = 0o022

// inspect looks at a plugin's file by the rules that hold whatever is in it. The file is returned beside a problem, as
// far as it is known, so that a change of it can be noticed.
func (s shelf) inspect(name string) (file, *problem) {
	path := s.find(name)
	if path == "" {
		return file{mark: "missing"}, &problem{Missing, "there is no file of this name in any plugin directory",
			"put it there, or take it out of the configuration"}
	}
	f := file{path: path}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		f.mark = "dangling"
		target, linkErr := os.Readlink(path)
		if linkErr != nil {
			return f, broken(fmt.Sprintf("%s cannot be read: %v", path, err), "check the file and the permissions of its directories")
		}
		return f, broken(fmt.Sprintf("%s is a link to %s, which does not exist", path, target), "mend or remove the link")
	}
	f.real = real
	info, err := os.Stat(real)
	if err != nil {
		f.mark = "unreadable"
		return f, broken(fmt.Sprintf("%s cannot be read: %v", path, err), "check the file and the permissions of its directories")
	}
	f.mark = mark(real, info)

	home := slices.IndexFunc(s.dirs, func(d shelfDir) bool {
		return strings.HasPrefix(real, d.real+string(filepath.Separator)) || d.real == string(filepath.Separator)
	})
	if home < 0 {
		return f, refused(fmt.Sprintf("%s is a link to %s, outside of every plugin directory", path, real),
			"move the file into a plugin directory and link to it there")
	}
	if info.IsDir() {
		return f, broken(path+" is a directory", "put the executable itself into the plugin directory")
	}
	if !info.Mode().IsRegular() {
		return f, broken(path+" is no regular file", "put an executable there")
	}
	for _, dir := range s.guarded(path, real, home) {
		dirInfo, err := os.Stat(dir)
		if err != nil {
			return f, broken(fmt.Sprintf("%s cannot be read: %v", dir, err), "check its permissions")
		}
		f.mark += dirInfo.Mode().String()
		if dirInfo.Mode().Perm()&writable != 0 {
			return f, refused(fmt.Sprintf("its directory %s may be written by others than its owner (mode %04o)", dir, dirInfo.Mode().Perm()),
				"run chmod go-w on the directory")
		}
	}
	if info.Mode().Perm()&writable != 0 {
		return f, refused(fmt.Sprintf("%s may be written by others than its owner (mode %04o)", real, info.Mode().Perm()),
			"run chmod go-w on it")
	}
	if info.Mode().Perm()&0o111 == 0 {
		return f, broken(fmt.Sprintf("%s may not be executed (mode %04o)", real, info.Mode().Perm()), "run chmod +x on it")
	}
	return f, nil
}

// guarded lists the directories in which the link or the file could be swapped.
func (s shelf) guarded(path, real string, home int) []string {
	dirs := []string{filepath.Dir(path)}
	top := s.dirs[home].real
	for dir := filepath.Dir(real); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == top || len(dir) <= len(top) {
			return dirs
		}
	}
}

// mark tells one state of a file from another.
func mark(real string, info fs.FileInfo) string {
	return fmt.Sprintf("%s %d %d %s ", real, info.Size(), info.ModTime().UnixNano(), info.Mode())
}

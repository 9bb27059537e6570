// Package postgres starts a throw-away PostgreSQL server for tests.
//
// The server listens on a Unix socket in its own temporary directory only, keeps nothing (fsync is off) and goes with
// the process that started it, however that ends: a shell between the two waits for the end of its standard input,
// stops the server then and removes the directory.
package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EnvDSN names a server that tests may use instead of starting one: a DSN whose user may create databases.
const EnvDSN = "NAGELFLUH_TEST_POSTGRES"

// EnvRequire makes a missing server an error instead of a reason to skip, when it is "1".
const EnvRequire = "NAGELFLUH_REQUIRE_POSTGRES"

// ErrNotInstalled: there are no server programs on this machine.
var ErrNotInstalled = errors.New("PostgreSQL is not installed: found neither /usr/lib/postgresql/*/bin/initdb nor initdb beside a pg_ctl on PATH")

// Server is a running PostgreSQL.
type Server struct {
	// DSN is for the superuser "postgres" and the database "postgres".
	DSN string

	dir     string
	stop    io.Closer // standard input of the shell
	done    chan struct{}
	stopped bool
}

// Required says whether tests must fail rather than skip without a server.
func Required() bool { return os.Getenv(EnvRequire) == "1" }

// Start makes a new database cluster and starts a server on it. It returns when the server answers. The caller calls
// Stop. It needs about two seconds.
func Start(ctx context.Context) (_ *Server, err error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(socketParent(), "ngf-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, done: make(chan struct{})}
	s.DSN = "postgres://postgres@/postgres?host=" + dir + "&port=5432&sslmode=disable"
	defer func() {
		if err != nil {
			_ = s.Stop()
			_ = os.RemoveAll(dir)
		}
	}()
	as, err := credential(dir)
	if err != nil {
		return nil, err
	}

	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := s.run(bin, data, as); err != nil {
		return nil, err
	}
	return s, s.ready(ctx, data)
}

// script runs the server until standard input ends. SIGINT is PostgreSQL's fast shutdown.
const script = `
"$1" -D "$2" -k "$3" -c listen_addresses= -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=300 \
	</dev/null >"$3/log" 2>&1 &
server=$!
cat >/dev/null
kill -INT $server 2>/dev/null
wait $server
rm -rf "$3"
`

func (s *Server) run(bin, data string, as *syscall.Credential) error {
	shell := exec.Command("/bin/sh", "-c", script, "sh", filepath.Join(bin, "postgres"), data, s.dir)
	shell.Dir = "/"
	// A group of its own: an interrupt of the tests' group must not reach the server before the tests are done.
	shell.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setpgid: true}
	stdin, err := shell.StdinPipe()
	if err != nil {
		return err
	}
	if err := shell.Start(); err != nil {
		return err
	}
	s.stop = stdin
	go func() {
		defer close(s.done)
		_ = shell.Wait()
	}()
	return nil
}

// ready waits until the last line of postmaster.pid says so.
func (s *Server) ready(ctx context.Context, data string) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(filepath.Join(data, "postmaster.pid")); err == nil && strings.HasSuffix(strings.TrimSpace(string(b)), "ready") {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.done:
			return errors.New("the PostgreSQL server ended at once")
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
			return fmt.Errorf("the PostgreSQL server does not become ready: %w: %s", ctx.Err(), bytes.TrimSpace(log))
		}
	}
}

// Stop ends the server, waits for its end and removes its files. Stopping twice is safe.
func (s *Server) Stop() error {
	if s.stop == nil || s.stopped {
		return nil
	}
	s.stopped = true
	err := s.stop.Close()
	<-s.done
	return err
}

// programs finds the folder of the newest installed server.
func programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if ctl, err := exec.LookPath("pg_ctl"); err == nil {
		if real, err := filepath.EvalSymlinks(ctl); err == nil {
			found = append(found, filepath.Join(filepath.Dir(real), "initdb"))
		}
	}
	for _, f := range found {
		if _, err := os.Stat(f); err == nil {
			return filepath.Dir(f), nil
		}
	}
	return "", ErrNotInstalled
}

// version is the number in /usr/lib/postgresql/15/bin/initdb.
func version(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

// socketParent is a short folder: the path of a Unix socket has at most about 100 bytes.
func socketParent() string {
	if dir := os.TempDir(); len(dir) < 60 {
		return dir
	}
	return "/tmp"
}

// credential gives dir to a user without rights when this process is root, as whom PostgreSQL refuses to run.
func credential(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

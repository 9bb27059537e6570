// Package s3 starts a throw-away S3 server for tests: versitygw over a directory, which rig/s3/build.sh builds.
package s3

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const (
	// EnvBinary says where the server's binary is, when not in bin/ of a directory above.
	EnvBinary = "NAGELFLUH_S3"
	// EnvRequire makes a missing binary a failure instead of a reason to skip, when it is "1".
	EnvRequire = "NAGELFLUH_REQUIRE_S3"
)

// Server is an S3 server on loopback.
type Server struct {
	Endpoint string
	dir      string // a directory for each bucket
	beside   string // what is kept of objects beside their content
	address  string
	binary   string
	stdin    io.Closer
	done     chan error
}

// Start starts a server with one account and buckets, and stops it when the test ends. It skips the test when there is no
// binary.
func Start(t testing.TB, accessKey, secretKey string, buckets ...string) *Server {
	t.Helper()
	binary, err := find()
	if err != nil {
		if os.Getenv(EnvRequire) == "1" {
			t.Fatal(err)
		}
		t.Skipf("skipped: %v (set %s=1 to make this a failure)", err, EnvRequire)
	}
	s := &Server{dir: t.TempDir(), beside: t.TempDir(), binary: binary}
	for _, b := range buckets {
		if err := os.Mkdir(filepath.Join(s.dir, b), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = free.Addr().String()
	s.Endpoint = "http://" + s.address
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	s.Restart(t, accessKey, secretKey)
	return s
}

// Restart has the server serve the same data with another account.
func (s *Server) Restart(t testing.TB, accessKey, secretKey string) {
	t.Helper()
	s.Stop()
	// The shell ends the server when the test's process is gone, however that ends: its standard input closes then.
	cmd := exec.Command("sh", "-c", `"$@" & server=$!; cat >/dev/null; kill $server; wait $server`, "sh",
		s.binary, "--quiet", "--port", s.address, "posix", "--sidecar", s.beside, s.dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+accessKey, "ROOT_SECRET_ACCESS_KEY="+secretKey)
	log, err := os.Create(filepath.Join(t.TempDir(), "s3.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if s.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.done = make(chan error, 1)
	done := s.done
	go func() { done <- cmd.Wait() }()
	if err := s.wait(); err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("the S3 server does not come: %v\n%s", err, text)
	}
}

// wait returns when the server answers.
func (s *Server) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint, nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err == nil {
			return resp.Body.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond): // there is nothing to wait on from outside
		}
	}
}

// Stop ends the server; its data stays until the test ends.
func (s *Server) Stop() {
	if s.stdin == nil {
		return
	}
	_ = s.stdin.Close()
	<-s.done //nolint:errcheck // it was told to end
	s.stdin = nil
}

// Objects lists the keys in a bucket, as the files that they are.
func (s *Server) Objects(bucket string) (keys []string, err error) {
	root := filepath.Join(s.dir, bucket)
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			path, err = filepath.Rel(root, path)
			keys = append(keys, filepath.ToSlash(path))
		}
		return err
	})
	return keys, err
}

func find() (string, error) {
	if path := os.Getenv(EnvBinary); path != "" {
		_, err := os.Stat(path)
		return path, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "bin", "versitygw")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no S3 server: build it with rig/s3/build.sh or set " + EnvBinary)
		}
		dir = up
	}
}

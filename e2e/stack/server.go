package stack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// ServerOptions say how to start a server.
type ServerOptions struct {
	Binary    string // empty: bin/nagelfluh
	Dir       string // data directory; required
	PluginDir string // empty: bin/plugins
	// Kubeconfig is the backend's own environment, so the default cluster. Empty: none.
	Kubeconfig string
	Env        []string      // further variables
	Args       []string      // further flags
	Line       func(string)  // gets each line of the server's output; nil: nobody
	Ready      time.Duration // how long it may take to listen; 0: a minute
	Listen     string        // empty: a free port on loopback
	// Key is the admin's, when the server is not the first on its database. Empty: it is where the first start stores it.
	Key string
}

// Server is a running server.
type Server struct {
	*Child
	URL string
	Key string // the admin's API key
	o   ServerOptions
}

var listening = regexp.MustCompile(`listening on \S*?(127\.0\.0\.1:\d+)`)

// StartServer starts a server and returns when it listens. Its environment is the caller's PATH and HOME only, besides
// what the options say.
func StartServer(ctx context.Context, o ServerOptions) (*Server, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	if o.Binary == "" {
		o.Binary = filepath.Join(root, "bin", "nagelfluh")
	}
	if o.PluginDir == "" {
		o.PluginDir = filepath.Join(root, "bin", "plugins")
	}
	if o.Ready == 0 {
		o.Ready = time.Minute
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	s := &Server{o: o}
	args := append([]string{"server", "--data-dir", o.Dir, "--listen", o.Listen, "--plugin-dir", o.PluginDir}, o.Args...)
	cmd := exec.Command(o.Binary, args...)
	dieWithParent(cmd)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + o.Dir, "KUBECONFIG=" + o.Kubeconfig}, o.Env...)
	ready := make(chan struct{})
	s.Child, err = spawn("nagelfluh server", cmd, func(line string) {
		if m := listening.FindStringSubmatch(line); m != nil && s.URL == "" {
			s.URL = "http://" + m[1]
			close(ready)
		}
		if o.Line != nil {
			o.Line(line)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := s.wait(ctx, ready, o.Ready); err != nil {
		s.Kill()
		return nil, err
	}
	if s.Key = o.Key; s.Key != "" {
		return s, nil
	}
	key, err := os.ReadFile(filepath.Join(o.Dir, "admin.key"))
	if err != nil {
		s.Kill()
		return nil, fmt.Errorf("read the admin's key that the first start stored: %w", err)
	}
	s.Key = strings.TrimSpace(string(key))
	return s, nil
}

// Command is one call of the command line against the server.
func (s *Server) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.o.Binary, args...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + s.o.Dir,
		"NAGELFLUH_SERVER=" + s.URL, "NAGELFLUH_API_KEY=" + s.Key,
	}
	return cmd
}

// CLI runs the command line and returns its standard output; the error holds what it printed to standard error.
func (s *Server) CLI(ctx context.Context, args ...string) (string, error) {
	cmd := s.Command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("nagelfluh %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Response is an API answer, read to its end.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Code is the stable code of a problem answer; empty when it is none.
func (r Response) Code() string {
	var p struct {
		Code string `json:"code"`
	}
	_ = json.Unmarshal(r.Body, &p)
	return p.Code
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// Do sends one API request under /api/v1. body may be nil, raw bytes, or anything that encodes as JSON.
func (s *Server) Do(ctx context.Context, method, path string, body any, header ...string) (Response, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case []byte:
		r = bytes.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return Response{}, err
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+"/api/v1"+path, r)
	if err != nil {
		return Response{}, err
	}
	if s.Key != "" {
		req.Header.Set("Authorization", "Bearer "+s.Key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: raw}, err
}

// Get decodes the answer of a GET into out; any status but 200 is an error.
func (s *Server) Get(ctx context.Context, path string, out any) error {
	r, err := s.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	if r.Status != http.StatusOK {
		return fmt.Errorf("GET %s: status %d: %s", path, r.Status, r.Body)
	}
	return json.Unmarshal(r.Body, out)
}

// Until asks again and again, a short pause between, until check says done or ctx ends; what check said last before that
// then says what was missing.
func Until(ctx context.Context, what string, check func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		done, err := check()
		if done {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // afterwards it would only say that the time is over
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waiting until %s: %w", what, ctx.Err()), last)
		case <-tick.C:
		}
	}
}

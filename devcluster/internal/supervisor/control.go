package supervisor

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

// Report is the answer to `status`.
type Report struct {
	PID      int                   `json:"pid"`
	Dir      string                `json:"dir"`
	Ready    bool                  `json:"ready"` // all clusters have been ready once
	Clusters []controlplane.Status `json:"clusters"`
}

func (s *supervisor) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		report := Report{PID: os.Getpid(), Dir: s.Dir, Ready: s.allReady}
		s.mu.Unlock()
		for _, name := range s.order {
			report.Clusters = append(report.Clusters, s.clusters[name].Status())
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report)
	})
	mux.HandleFunc("POST /down", func(http.ResponseWriter, *http.Request) { s.stop() })
	for action, act := range map[string]func(context.Context, *controlplane.Cluster) error{
		"restart":         func(ctx context.Context, c *controlplane.Cluster) error { return c.Restart(ctx) },
		"stop-apiserver":  func(_ context.Context, c *controlplane.Cluster) error { return c.StopAPIServer() },
		"start-apiserver": func(ctx context.Context, c *controlplane.Cluster) error { return c.StartAPIServer(ctx) },
	} {
		mux.HandleFunc("POST /clusters/{name}/"+action, func(w http.ResponseWriter, r *http.Request) {
			cluster, found := s.clusters[r.PathValue("name")]
			if !found {
				http.Error(w, fmt.Sprintf("no cluster %q here; there are: %q", r.PathValue("name"), s.order), http.StatusNotFound)
				return
			}
			if err := act(r.Context(), cluster); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := []byte(r.Header.Get("Authorization"))
		if subtle.ConstantTimeCompare(given, []byte("Bearer "+s.token)) != 1 {
			http.Error(w, "wrong token", http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Client speaks to the supervisor of a folder.
type Client struct {
	dir   string
	state state
}

// Dial finds the supervisor of dir. The error is ErrNotRunning when there is none.
func Dial(dir string) (*Client, error) {
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	return &Client{dir: dir, state: s}, nil
}

// Status asks for the state of all clusters.
func (c *Client) Status(ctx context.Context) (Report, error) {
	var report Report
	body, err := c.call(ctx, http.MethodGet, "/status")
	if err != nil {
		return report, err
	}
	return report, json.Unmarshal(body, &report)
}

// Cluster does restart, stop-apiserver or start-apiserver, and waits for it.
func (c *Client) Cluster(ctx context.Context, name, action string) error {
	_, err := c.call(ctx, http.MethodPost, "/clusters/"+name+"/"+action)
	return err
}

// Down stops everything and returns when the supervisor has ended.
func (c *Client) Down(ctx context.Context) error {
	if _, err := c.call(ctx, http.MethodPost, "/down"); err != nil {
		return err
	}
	for {
		if errors.Is(syscall.Kill(c.state.PID, 0), syscall.ESRCH) {
			return nil
		}
		// The lock is free at the very end, also if the process is a zombie
		// that its parent has not waited for yet.
		if held, err := lock(c.dir); err == nil {
			return held.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d has not ended yet: %w", c.state.PID, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (c *Client) call(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.state.Address+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.state.Token)
	response, err := http.DefaultTransport.RoundTrip(request)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%s: %w (an earlier one was killed)", c.dir, ErrNotRunning)
	}
	if err != nil {
		return nil, fmt.Errorf("ask process %d: %w", c.state.PID, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("ask process %d: %w", c.state.PID, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(string(bytes.TrimSpace(body)))
	}
	return body, nil
}

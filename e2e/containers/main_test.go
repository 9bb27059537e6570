// Package containers tests what only real containers show: image pulls, OOM kills, evictions and rotated logs, on a dev
// cluster whose node is a kubelet with containerd.
package containers

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

var (
	clusters *stack.Clusters
	server   *stack.Server
	options  stack.ServerOptions // of server
)

const image = "devcluster.local/busybox:1"

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// missing says why there can be no node with containers here; empty: there can.
func missing() string {
	root, err := stack.Root()
	if err != nil {
		return err.Error()
	}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return "they need Linux and root"
	}
	for _, need := range []string{"bin/nagelfluh", "bin/devcluster"} {
		if _, err := os.Stat(filepath.Join(root, need)); err != nil {
			return need + " is missing: run `make build devcluster`"
		}
	}
	tools := filepath.Join(root, "bin", "containerd")
	for _, need := range []string{filepath.Join(tools, "containerd"), filepath.Join(tools, "containerd-shim-runc-v2"), filepath.Join(tools, "ctr"), "/usr/lib/cni/bridge"} {
		if _, err := os.Stat(need); err != nil {
			return need + " is missing: run devcluster/containerd.sh"
		}
	}
	for _, need := range []string{"runc", "iptables", "ip", "busybox"} {
		if _, err := exec.LookPath(need); err != nil {
			return need + " is not installed: run devcluster/containerd.sh"
		}
	}
	return ""
}

func run(m *testing.M) int {
	if why := missing(); why != "" {
		if os.Getenv("NAGELFLUH_REQUIRE_CONTAINERS") == "1" {
			fmt.Fprintln(os.Stderr, "the tests with containers:", why)
			return 1
		}
		fmt.Println("SKIP: the tests with containers:", why)
		return 0
	}
	dir, err := os.MkdirTemp("", "nagelfluh-ct-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	if clusters, err = stack.StartClusters(ctx, filepath.Join(dir, "c"), []string{"real"}, nil, "--name", "real", "--containers"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := 1
	options = stack.ServerOptions{Dir: filepath.Join(dir, "data"), Kubeconfig: clusters.Kubeconfig("real")}
	if server, err = stack.StartServer(ctx, options); err == nil {
		code = m.Run()
		err = server.Stop(20 * time.Second)
	}
	if stopped := clusters.Stop(40 * time.Second); err == nil {
		err = stopped
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// version is what the tests read of one.
type version struct {
	ID      string
	State   string
	Attempt struct {
		Number      int
		Reason      string
		ReasonCode  string `json:"reason_code"`
		ReasonClass string `json:"reason_class"`
		StopCode    string `json:"stop_code"`
		ExitCode    *int   `json:"exit_code"`
	}
}

func (v version) String() string {
	exit := "no exit code"
	if v.Attempt.ExitCode != nil {
		exit = fmt.Sprint("exit code ", *v.Attempt.ExitCode)
	}
	return fmt.Sprintf("%s, %s (%s): %s; %s", v.State, v.Attempt.ReasonCode, v.Attempt.ReasonClass, v.Attempt.Reason, exit)
}

// submit runs a shell script; more is added to its spec.
func submit(t *testing.T, script string, more map[string]any) version {
	t.Helper()
	spec := map[string]any{"image": image, "command": []string{"sh", "-c", script}}
	for k, v := range more {
		spec[k] = v
	}
	r, err := server.Do(t.Context(), http.MethodPost, "/projects/default/processes", map[string]any{"name": "work", "spec": spec})
	if err != nil || r.Status != http.StatusCreated {
		t.Fatalf("submit: status %d, %v: %s", r.Status, err, r.Body)
	}
	var v version
	if err := json.Unmarshal(r.Body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// until waits for a version to be as wanted.
func until(t *testing.T, v version, what string, ok func(version) bool) version {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := stack.Until(ctx, what, func() (bool, error) {
		if err := server.Get(ctx, "/versions/"+v.ID, &v); err != nil {
			return false, err
		}
		return ok(v), fmt.Errorf("it is %s", v)
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ended(t *testing.T, v version) version {
	t.Helper()
	return until(t, v, "it has ended", func(v version) bool { return v.State == "succeeded" || v.State == "failed" || v.State == "cancelled" })
}

// log is all that a version has printed, read when it is stored.
func log(t *testing.T, v version) string {
	t.Helper()
	r, err := server.Do(t.Context(), http.MethodGet, "/versions/"+v.ID+"/logs?follow=true", nil)
	if err != nil || r.Status != http.StatusOK {
		t.Fatalf("log: status %d, %v, %d bytes that end with %q", r.Status, err, len(r.Body), r.Body[max(0, len(r.Body)-300):])
	}
	return string(r.Body)
}

// nodeTells prints, when a test has failed, how the node saw it: the ends of the logs of its two parts, and what runs of
// the container's command.
func nodeTells(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, part := range []string{"kubelet", "containerd"} {
			raw, err := os.ReadFile(clusters.ComponentLog("real", part))
			t.Logf("the end of the log of %s (%v):\n%s", part, err, raw[max(0, len(raw)-6000):])
		}
		statuses, _ := filepath.Glob("/proc/[0-9]*/status")
		for _, path := range statuses {
			raw, _ := os.ReadFile(path)
			if name, _, _ := strings.Cut(string(raw), "\n"); strings.HasSuffix(name, "\tawk") || strings.HasSuffix(name, "\tsleep") {
				wchan, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "wchan"))
				t.Logf("%s waits in %q:\n%s", filepath.Dir(path), wchan, raw[:min(len(raw), 300)])
			}
		}
	})
}

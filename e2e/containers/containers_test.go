package containers

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

func TestExitCodeAndLog(t *testing.T) {
	v := ended(t, submit(t, "echo hello; exit 3", nil))
	if v.State != "failed" || v.Attempt.ReasonCode != "exit-code" || v.Attempt.ExitCode == nil || *v.Attempt.ExitCode != 3 {
		t.Errorf("it is %s", v)
	}
	if text := log(t, v); text != "hello\n" {
		t.Errorf("the log is %q", text)
	}
}

// The kernel kills what uses more memory than it may.
func TestOOMKill(t *testing.T) {
	v := ended(t, submit(t, "echo before; tail /dev/zero", map[string]any{"limits": map[string]string{"memory": "32Mi"}}))
	if v.State != "failed" || v.Attempt.ReasonCode != "oom-killed" || v.Attempt.ReasonClass != "user" || v.Attempt.ExitCode == nil || *v.Attempt.ExitCode != 137 {
		t.Errorf("it is %s", v)
	}
	if text := log(t, v); !strings.HasPrefix(text, "before\n") {
		t.Errorf("the log is %q", text)
	}
}

// A registry that does not answer, and one that nobody vouches for: the reason has the runtime's words, and the start limit
// ends the wait.
func TestB18_ImagePull(t *testing.T) {
	address := nodeAddress(t)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	registry := httptest.NewUnstartedServer(http.NotFoundHandler())
	registry.Listener.Close()
	registry.Listener = listener
	registry.Config.ErrorLog = stdlog.New(io.Discard, "", 0) // a refused certificate is what is wanted
	registry.StartTLS()
	defer registry.Close()
	closed, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, c := range map[string]struct{ registry, says string }{
		"nobody listens":    {closed.Addr().String(), "connection refused"},
		"unknown authority": {listener.Addr().String(), "x509"},
	} {
		t.Run(name, func(t *testing.T) {
			v := submit(t, "true", map[string]any{"image": c.registry + "/team/train:1", "start_limits": map[string]int{"image_pull": 8}})
			v = until(t, v, "the reason is image-pull", func(v version) bool { return v.Attempt.ReasonCode == "image-pull" && v.State == "queued" })
			v = ended(t, v)
			if v.State != "failed" || v.Attempt.ReasonCode != "image-pull" || !strings.Contains(v.Attempt.Reason, c.says) || !strings.Contains(v.Attempt.Reason, c.registry) {
				t.Errorf("it is %s", v)
			}
		})
	}
}

// The kubelet evicts what uses more of the disk than it may: that is the user's doing, and not tried again.
func TestEvictionByItsOwnLimit(t *testing.T) {
	v := ended(t, submit(t, "head -c 50000000 /dev/zero > /tmp/much; sleep 300", map[string]any{"limits": map[string]string{"ephemeral-storage": "4Mi"}, "infrastructure_retries": 1}))
	if v.State != "failed" || v.Attempt.ReasonCode != "storage-limit" || v.Attempt.ReasonClass != "user" || v.Attempt.Number != 1 || !strings.Contains(v.Attempt.Reason, "ephemeral") {
		t.Errorf("it is %s", v)
	}
}

const line = "the quick brown fox jumps over the lazy dog"

// printer prints numbered lines, with a pause after each so many.
func printer(lines, burst int, pause string) string {
	return fmt.Sprintf(`awk 'BEGIN { for (i = 0; i < %d; i++) { printf "%%07d %s\n", i;
		if (i %% %d == %d) { fflush(); system("sleep %s") } } }'`, lines, line, burst, burst-1, pause)
}

// wholeOrMarked fails when a line comes twice, or is missing where no mark stands in its place; it returns the marks.
func wholeOrMarked(t *testing.T, text string, lines int) (marks []string) {
	t.Helper()
	next, marked := 0, false
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, "[nagelfluh]") {
			marks, marked = append(marks, strings.TrimSpace(l)), true
			continue
		}
		var n int
		if _, err := fmt.Sscanf(l, "%07d", &n); err != nil || !strings.HasSuffix(l, line+"\n") {
			t.Fatalf("line %q", l)
		}
		if n < next || n > next && !marked {
			t.Fatalf("line %d comes where %d should, mark: %t", n, next, marked)
		}
		next, marked = n+1, false
	}
	if next > lines || next < lines && !marked {
		t.Errorf("the log ends behind line %d of %d, mark: %t", next, lines, marked)
	}
	return marks
}

// A log that the kubelet rotates while it is followed: every line is there, or a mark says where some may be missing.
func TestRotatedLogIsWholeOrMarked(t *testing.T) {
	const lines = 120_000 // 6 MB; the node keeps 2
	v := ended(t, submit(t, printer(lines, 6000, "0.7"), nil))
	if v.State != "succeeded" {
		t.Fatalf("it is %s", v)
	}
	t.Log("marks:", wholeOrMarked(t, log(t, v), lines))
}

// What the kubelet rotates away while the server is down nobody can give back: a mark stands in its place, and what came
// before and after is there. After may be nothing: when the last line fills a file, the node rotates that away too.
func TestRotatedWhileTheServerWasDown(t *testing.T) {
	const lines = 80_000
	nodeTells(t)
	v := submit(t, printer(lines, 10_000, "2"), nil)
	until(t, v, "its first lines have been read", func(v version) bool {
		r, err := server.Do(t.Context(), http.MethodGet, "/versions/"+v.ID+"/logs?follow=false", nil)
		return err == nil && strings.HasPrefix(string(r.Body), "0000000 ")
	})
	server.Kill()
	c, err := clusters.Client("real")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	err = stack.Until(ctx, "its pod has ended", func() (bool, error) {
		pods, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: "nagelfluh.io/version=" + v.ID})
		if err != nil {
			return false, err
		}
		if len(pods.Items) == 1 && pods.Items[0].Status.Phase == corev1.PodSucceeded {
			return true, nil
		}
		seen := fmt.Errorf("%d pods", len(pods.Items))
		for _, p := range pods.Items {
			seen = fmt.Errorf("%w; %s: %+v", seen, p.Name, p.Status)
		}
		return false, seen
	})
	if err != nil {
		t.Fatal(err)
	}
	if server, err = stack.StartServer(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	if v = ended(t, v); v.State != "succeeded" {
		t.Fatalf("it is %s", v)
	}
	text := log(t, v)
	if marks := wholeOrMarked(t, text, lines); len(marks) != 1 || !strings.HasPrefix(text, "0000000 ") {
		t.Errorf("%d marks %q, want one, and the log begins with %q", len(marks), marks, text[:min(len(text), 60)])
	}
}

func nodeAddress(t *testing.T) string {
	t.Helper()
	c, err := clusters.Client("real")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := c.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 || len(nodes.Items[0].Status.Addresses) == 0 {
		t.Fatalf("%d nodes: %v", len(nodes.Items), err)
	}
	return nodes.Items[0].Status.Addresses[0].Address
}

package containers

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	registry.Config.ErrorLog = nil
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

// The kubelet evicts what uses more of the disk than it may.
func TestEviction(t *testing.T) {
	v := ended(t, submit(t, "head -c 50000000 /dev/zero > /tmp/much; sleep 300", map[string]any{"limits": map[string]string{"ephemeral-storage": "4Mi"}}))
	if v.State != "failed" || v.Attempt.ReasonCode != "evicted" || !strings.Contains(v.Attempt.Reason, "ephemeral") {
		t.Errorf("it is %s", v)
	}
}

// A log that the kubelet rotates while it is followed: every line is there, or a mark says where some may be missing.
func TestRotatedLogIsWholeOrMarked(t *testing.T) {
	const lines = 120_000
	v := ended(t, submit(t, fmt.Sprintf(`awk 'BEGIN { for (i = 0; i < %d; i++) { printf "%%07d the quick brown fox jumps over the lazy dog\n", i;
		if (i %% 6000 == 5999) { fflush(); system("sleep 0.7") } } }'`, lines), nil))
	if v.State != "succeeded" {
		t.Fatalf("it is %s", v)
	}
	next, marks := 0, 0
	for line := range strings.Lines(log(t, v)) {
		if strings.HasPrefix(line, "[nagelfluh]") {
			marks++
			next = -1
			continue
		}
		var n int
		if _, err := fmt.Sscanf(line, "%07d the quick", &n); err != nil || !strings.HasSuffix(line, "lazy dog\n") {
			t.Fatalf("line %q", line)
		}
		if next >= 0 && n != next {
			t.Fatalf("line %d comes where %d should, without a mark", n, next)
		}
		next = n + 1
	}
	if next != lines {
		t.Errorf("the log ends at line %d of %d", next, lines)
	}
	t.Logf("%d marks in %d lines, of which the node keeps less than half", marks, lines)
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

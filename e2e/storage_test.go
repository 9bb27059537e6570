package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
	"github.com/nagelfluh/nagelfluh/rig/s3"
)

// What a process wrote on one cluster it reads on the other, through a real S3 server; after the credentials have changed
// as well. They are in no answer, no log, no Job, and no Secret is left in the end.
func TestStorageOnTwoClusters(t *testing.T) {
	server := s3.Start(t, "id-one", "SECRET-MARK-one", "lake")
	program := filepath.Join(t.TempDir(), "storagejob")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "./storagejob")
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the job: %v\n%s", err, out)
	}
	config := filepath.Join(t.TempDir(), "nagelfluh.yaml")
	if err := os.WriteFile(config, []byte("jobs:\n  retention: 1s\nlog:\n  level: trace\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	w := newWorld(t, func(o *stack.ServerOptions) {
		o.Args = []string{"--config", config}
		o.Line = func(line string) { printed.WriteString(line + "\n") }
	})
	keys := func(id, secret string) string {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		if err := os.WriteFile(path, []byte("access_key_id: "+id+"\nsecret_access_key: "+secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cli := func(args ...string) string {
		t.Helper()
		out, err := w.CLI(w.ctx, args...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		if strings.Contains(out, "SECRET-MARK") {
			t.Errorf("%v shows a secret", args)
		}
		return out
	}
	add := []string{"storage", "add", "lake", "--endpoint", server.Endpoint, "--bucket", "lake", "--prefix", "all", "--path-style", "--credentials"}
	if out, err := w.CLI(w.ctx, append(add, keys("id-one", "SECRET-MARK-wrong"))...); err == nil {
		t.Errorf("wrong credentials were stored: %s", out)
	}
	cli(append(add, keys("id-one", "SECRET-MARK-one"))...)
	cli("storage", "test", "lake")
	cli("projects", "edit", "default", "--storage", "lake")

	run := func(cluster string, args ...string) string {
		t.Helper()
		body := submission("keeper", 0, append([]string{program}, args...)...)
		if cluster == "gpu" {
			onGPU(body)
		}
		v := w.submit(body)
		w.until("the job on "+cluster+" has ended", 2*minute, func() (bool, error) {
			v = w.get(v.ID)
			return v.ended(), fmt.Errorf("it is %s: %s", v.State, v.Attempt.Reason)
		})
		log := cli("logs", v.ID)
		if v.State != "succeeded" || cluster == "gpu" != (v.Attempt.ClusterName == "gpu") {
			t.Fatalf("%v on %q: %s: %s\n%s", args, v.Attempt.ClusterName, v.State, v.Attempt.Reason, log)
		}
		return log
	}
	run("main", "put", "a/b.txt", "written on main")
	if got := run("gpu", "get", "a/b.txt"); got != "written on main" {
		t.Errorf("the second cluster reads %q", got)
	}
	objects, err := server.Objects("lake")
	if err != nil || len(objects) != 1 || !strings.HasPrefix(objects[0], "all/") || !strings.HasSuffix(objects[0], "/a/b.txt") {
		t.Errorf("the bucket holds %v, %v", objects, err)
	}

	server.Restart(t, "id-two", "SECRET-MARK-two")
	cli("storage", "edit", "lake", "--credentials", keys("id-two", "SECRET-MARK-two"))
	run("gpu", "put", "a/b.txt", "written on gpu")
	if got := run("main", "get", "a/b.txt"); got != "written on gpu" {
		t.Errorf("the first cluster reads %q", got)
	}

	if out, err := w.CLI(w.ctx, "storage", "rm", "lake"); err == nil || !strings.Contains(err.Error()+out, "1 projects") {
		t.Errorf("removed while a project uses it: %s %v", out, err)
	}
	for _, cluster := range []string{"main", "gpu"} {
		secrets := w.client(cluster).CoreV1().Secrets(w.namespace)
		w.until("no Secret is left on "+cluster, 2*minute, func() (bool, error) {
			list, err := secrets.List(w.ctx, metav1.ListOptions{LabelSelector: "nagelfluh.io/storage"})
			if err != nil {
				return false, err
			}
			return len(list.Items) == 0, fmt.Errorf("%d are left", len(list.Items))
		})
	}
	cli("projects", "edit", "default", "--storage", "")
	cli("storage", "rm", "lake")
	if err := w.Stop(minute / 3); err != nil {
		t.Error(err)
	}
	if lines := strings.Split(printed.String(), "\n"); slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "SECRET-MARK") }) {
		t.Error("the server's log shows a secret")
	}
}

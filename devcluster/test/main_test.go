// Package test tries the built binary: clusters, pods, logs, ends.
//
// It takes the binary that NAGELFLUH_DEVCLUSTER names ("off": none) or ../../bin/devcluster, and skips without one
// unless NAGELFLUH_REQUIRE_DEVCLUSTER=1.
package test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func binary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("NAGELFLUH_DEVCLUSTER")
	if path == "" {
		path, _ = filepath.Abs("../../bin/devcluster")
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("NAGELFLUH_REQUIRE_DEVCLUSTER") == "1" {
			t.Fatal(err)
		}
		t.Skipf("skipped: no devcluster binary (%v): run devcluster/build.sh", err)
	}
	return path
}

// cluster is one line of `up --json`.
type cluster struct {
	Name       string `json:"name"`
	Kubeconfig string `json:"kubeconfig"`
	Dir        string `json:"dir"`
	client     *kubernetes.Clientset
}

// up starts clusters in dir and returns them with the supervisor's process.
func up(t testing.TB, dir string, args ...string) (map[string]*cluster, *exec.Cmd) {
	t.Helper()
	process := exec.Command(binary(t), append([]string{"up", "--json", "--until-eof", "--dir", dir}, args...)...)
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		_ = process.Wait()
	})
	want := strings.Count(strings.Join(args, " "), "--name")
	clusters := map[string]*cluster{}
	lines := bufio.NewScanner(output)
	for len(clusters) < want && lines.Scan() {
		c := &cluster{}
		if err := json.Unmarshal(lines.Bytes(), c); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		c.client = client(t, c.Kubeconfig)
		clusters[c.Name] = c
	}
	if len(clusters) < want {
		t.Fatalf("only %d of %d clusters got ready", len(clusters), want)
	}
	return clusters, process
}

func client(t testing.TB, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return kubernetes.NewForConfigOrDie(config)
}

// create creates a pod in the default namespace.
func (c *cluster) create(t *testing.T, name string, change func(*corev1.Pod)) {
	t.Helper()
	grace := int64(5)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "main", Image: "any"}},
		},
	}
	change(pod)
	if _, err := c.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func shell(script string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Command = []string{"sh", "-c", script}
	}
}

// await polls the pod until it is as wanted.
func (c *cluster) await(t *testing.T, name, what string, wanted func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, name+": "+what, func() bool {
		var err error
		pod, err = c.client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
		return err == nil && wanted(pod)
	}, func() any { return pod.Status })
	return pod
}

func (c *cluster) awaitPhase(t *testing.T, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	return c.await(t, name, string(phase), func(p *corev1.Pod) bool { return p.Status.Phase == phase })
}

func (c *cluster) logs(t *testing.T, name string, options corev1.PodLogOptions) string {
	t.Helper()
	stream, err := c.client.CoreV1().Pods("default").GetLogs(name, &options).Stream(t.Context())
	if err != nil {
		t.Fatalf("log of %s: %v", name, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil {
		t.Fatalf("log of %s: %v", name, err)
	}
	return string(text)
}

func eventually(t *testing.T, what string, ok func() bool, state func() any) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute; last: %+v", what, state())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// commands returns the command lines of all processes of this machine in which
// text occurs.
func commands(t *testing.T, text string) []string {
	t.Helper()
	output, err := exec.Command("ps", "-eo", "pid=,stat=,args=").Output()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(output)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && !strings.HasPrefix(fields[1], "Z") && strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

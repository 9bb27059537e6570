package logs

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/rig/cluster"
)

// Real Jobs on a real API server: what a container prints is what a reader gets and what the archive holds.
func TestRealCluster(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Specs: []cluster.Spec{{Name: "logs"}}})[0]
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	namespace := cluster.Namespace(t, c)
	scripts := map[string]struct {
		init, main, want string
		container        string
		cut              bool
	}{
		"short":     {main: "echo one; echo two", want: "one\ntwo\n"},
		"silent":    {main: "true"},
		"slow":      {main: "for i in 1 2 3 4 5; do echo $i; sleep 0.2; done", want: "1\n2\n3\n4\n5\n"},
		"restarted": {main: "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.1; done", want: numbered(40), cut: true},
		"long line": {main: `head -c 5000000 /dev/zero | tr '\0' L; echo; echo after`, want: strings.Repeat("L", 5_000_000) + "\nafter\n"},
		"binary":    {main: `printf '\342\226\210\377\376\0a\rb\r\n\nno end'`, want: "\xe2\x96\x88\xff\xfe\x00a\rb\r\n\nno end"},
		"init":      {init: "echo cannot fetch; exit 3", main: "echo never", want: "cannot fetch\n", container: "fetch"},
	}
	for name, s := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *KeeperOptions) {
				o.Source = Clients(func(context.Context, string) (kubernetes.Interface, error) { return client, nil })
			})
			r.rows.set(id, func(a *process.Attempt) { a.Namespace = namespace })
			g := r.read(FollowOptions{Follow: true})
			j := realJob(t, client, namespace, strings.ReplaceAll(name, " ", "-"), s.init, s.main)

			done := false
			for deadline := time.Now().Add(2 * time.Minute); !done; {
				if time.Now().After(deadline) {
					t.Fatal("the Job did not end")
				}
				// A watch of the pods would do; a slow poll shows that jobs between two looks are complete.
				select {
				case <-time.After(300 * time.Millisecond):
				case <-t.Context().Done():
				}
				r.ensure(podsOf(t, client, j)...)
				if s.cut && g.size() > 100 {
					s.cut = false
					after := g.at()
					g.cancel()
					<-g.done
					before := g.text.String()
					r.restart()
					r.ensure(podsOf(t, client, j)...)
					g = r.read(FollowOptions{Follow: true, After: after})
					g.mu.Lock()
					rest := g.text.String()
					g.text.Reset()
					g.text.WriteString(before + rest)
					g.mu.Unlock()
				}
				now, err := client.BatchV1().Jobs(namespace).Get(t.Context(), j.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range now.Status.Conditions {
					done = done || (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
				}
			}
			pods := podsOf(t, client, j)
			m := r.finish(process.Succeeded, pods...)
			container := s.container
			if container == "" {
				container = MainContainer
			}
			if got := g.wait(); got != s.want {
				t.Error("reader:", differ(got, s.want))
			}
			if got := r.stored(pods[0].Name, container); got != s.want || !m.Complete() {
				t.Error("archive:", differ(got, s.want))
			}
		})
	}
}

func (g *reading) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.text.Len()
}

func (g *reading) at() Cursor {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("line " + strconv.Itoa(i+1) + "\n")
	}
	return b.String()
}

func realJob(t *testing.T, client kubernetes.Interface, namespace, name, init, main string) *batchv1.Job {
	t.Helper()
	limit := int32(0)
	container := func(name, script string) corev1.Container {
		return corev1.Container{Name: name, Image: "shell", Command: []string{"/bin/sh", "-c", script}}
	}
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{BackoffLimit: &limit}}
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	j.Spec.Template.Spec.Containers = []corev1.Container{container(MainContainer, main)}
	if init != "" {
		j.Spec.Template.Spec.InitContainers = []corev1.Container{container("fetch", init)}
	}
	j, err := client.BatchV1().Jobs(namespace).Create(t.Context(), j, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func podsOf(t *testing.T, client kubernetes.Interface, j *batchv1.Job) []*corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods(j.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + j.Name})
	if err != nil {
		t.Fatal(err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods
}

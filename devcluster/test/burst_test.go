package test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBurst says how fast Jobs that do nothing go through. It takes a while and
// says little on a busy machine: it runs when DEVCLUSTER_BURST names a number.
func TestBurst(t *testing.T) {
	var count int
	if _, err := fmt.Sscan(os.Getenv("DEVCLUSTER_BURST"), &count); err != nil {
		t.Skip("skipped: set DEVCLUSTER_BURST=1000 to run it")
	}
	clusters, _ := up(t, t.TempDir(), "--name", "a")
	c := clusters["a"].client
	before := commands(t, "devcluster")
	began := time.Now()
	names := make(chan string)
	var creators sync.WaitGroup
	for range 20 {
		creators.Go(func() {
			for name := range names {
				job := &batchv1.Job{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
						RestartPolicy: corev1.RestartPolicyNever,
						Containers:    []corev1.Container{{Name: "main", Image: "any", Command: []string{"true"}}},
					}}},
				}
				if _, err := c.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range count {
		names <- fmt.Sprintf("job-%d", i)
	}
	close(names)
	creators.Wait()
	created := time.Since(began)
	for done := 0; done < count; {
		time.Sleep(500 * time.Millisecond)
		jobs, err := c.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			t.Fatal(err)
		}
		done = 0
		for _, job := range jobs.Items {
			done += int(job.Status.Succeeded)
		}
		if time.Since(began) > 5*time.Minute {
			t.Fatalf("%d of %d Jobs done after 5 minutes", done, count)
		}
	}
	t.Logf("%d Jobs created in %s, done in %s", count, created.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	t.Logf("%d processes before, %d after", len(before), len(commands(t, "devcluster")))
}

// TestCrowd runs many pods at once, all of them followed.
func TestCrowd(t *testing.T) {
	var count int
	if _, err := fmt.Sscan(os.Getenv("DEVCLUSTER_CROWD"), &count); err != nil {
		t.Skip("skipped: set DEVCLUSTER_CROWD=200 to run it")
	}
	clusters, _ := up(t, t.TempDir(), "--name", "a")
	c := clusters["a"]
	began := time.Now()
	var followers sync.WaitGroup
	for i := range count {
		name := fmt.Sprintf("pod-%d", i)
		c.create(t, name, shell("for i in 1 2 3 4 5; do echo line $i; sleep 2; done"))
		followers.Go(func() {
			var got string
			for got == "" && time.Since(began) < time.Minute {
				stream, err := c.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
				if err != nil {
					time.Sleep(200 * time.Millisecond)
					continue
				}
				text, _ := io.ReadAll(stream)
				stream.Close()
				got = string(text)
			}
			if got != "line 1\nline 2\nline 3\nline 4\nline 5\n" {
				t.Errorf("%s: %q", name, got)
			}
		})
	}
	followers.Wait()
	t.Logf("%d pods of 10 s followed to their ends in %s", count, time.Since(began).Round(time.Millisecond))
	for _, line := range commands(t, "--dir "+filepath.Dir(filepath.Dir(c.Kubeconfig))+"/a") {
		t.Log(line[:min(len(line), 60)])
	}
}

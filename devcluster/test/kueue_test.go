package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// TestKueue lets three Jobs queue for the CPUs of two.
func TestKueue(t *testing.T) {
	program := filepath.Join(filepath.Dir(binary(t)), "kueue")
	if path := os.Getenv("NAGELFLUH_KUEUE"); path != "" {
		program = path
	}
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("NAGELFLUH_REQUIRE_KUEUE") == "1" {
			t.Fatal(err)
		}
		t.Skipf("skipped: %v: run devcluster/kueue.sh", err)
	}
	clusters, _ := up(t, t.TempDir(), "--name", "a", "--cpu", "2", "--kueue", "--kueue-bin", program)
	c := clusters["a"]
	job := func(i int) string {
		name := fmt.Sprintf("job-%d", i)
		suspended := true
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": "default"}},
			Spec: batchv1.JobSpec{
				Suspend: &suspended,
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers: []corev1.Container{{
						Name: "main", Image: "any", Command: []string{"sleep", "3"},
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
					}},
				}},
			},
		}
		if _, err := c.client.BatchV1().Jobs("default").Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for i := range 3 {
		job(i)
	}
	count := func(is func(batchv1.Job) bool) int {
		jobs, err := c.client.BatchV1().Jobs("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, job := range jobs.Items {
			if is(job) {
				n++
			}
		}
		return n
	}
	suspended := func(job batchv1.Job) bool { return *job.Spec.Suspend }
	eventually(t, "two are admitted", func() bool { return count(suspended) == 1 }, func() any { return "" })
	time.Sleep(500 * time.Millisecond)
	if n := count(suspended); n != 1 {
		t.Errorf("%d are suspended; want the third one", n)
	}
	eventually(t, "all are done", func() bool {
		return count(func(job batchv1.Job) bool { return job.Status.Succeeded == 1 }) == 3
	}, func() any { return "" })

	// The older version of the API is served by Kueue's conversion.
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	var queue *unstructured.Unstructured
	queue, err = dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta1", Resource: "clusterqueues"}).
		Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || queue.GetAPIVersion() != "kueue.x-k8s.io/v1beta1" {
		t.Errorf("the queue as v1beta1: %v, %v", queue, err)
	}
}

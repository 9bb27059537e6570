package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStartRunsJobs(t *testing.T) {
	c := Start(t, Options{Private: true})[0]
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	namespace := Namespace(t, c)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "any", Command: []string{"true"}}},
		}}},
	}
	if _, err := client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		job, err := client.BatchV1().Jobs(namespace).Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if job.Status.Succeeded == 1 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if created, err := c.Created("jobs", namespace); err != nil || created != 1 {
		t.Errorf("the audit log has %d created Jobs, %v; want 1", created, err)
	}

	if err := c.StopAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.BatchV1().Jobs(namespace).Get(ctx, "one", metav1.GetOptions{}); err == nil {
		t.Error("the stopped API server answers")
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.BatchV1().Jobs(namespace).Get(ctx, "one", metav1.GetOptions{}); err != nil {
		t.Errorf("after the API server came back: %v", err)
	}

	t.Setenv(DirEnv, c.dir)
	if again := Start(t, Options{}); again[0].Server != c.Server {
		t.Errorf("with %s a cluster of its own was started", DirEnv)
	}
	t.Setenv(DirEnv, t.TempDir())
	if _, _, err := start(Options{}); err == nil || !strings.Contains(err.Error(), DirEnv) {
		t.Errorf("with a %s where nothing runs: %v", DirEnv, err)
	}
}

func TestFindBinary(t *testing.T) {
	t.Setenv(BinaryEnv, "off")
	if path, err := findBinary(); !errors.Is(err, errNoBinary) {
		t.Errorf("off: %q, %v; want %v", path, err, errNoBinary)
	}
	t.Setenv(BinaryEnv, "/no/such/file")
	if path, err := findBinary(); err == nil || errors.Is(err, errNoBinary) {
		t.Errorf("a wrong path: %q, %v; want an error that is no reason to skip", path, err)
	}
}

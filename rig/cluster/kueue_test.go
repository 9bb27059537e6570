package cluster

import (
	"context"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestLocalQueueAdmits(t *testing.T) {
	c := Start(t, Options{Private: true, Kueue: true})[0]
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	namespace := Namespace(t, c)
	LocalQueue(t, c, namespace, "main")
	suspended := true
	_, err = client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"kueue.x-k8s.io/queue-name": "main"}},
		Spec: batchv1.JobSpec{Suspend: &suspended, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "any", Command: []string{"true"}}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		job, err := client.BatchV1().Jobs(namespace).Get(ctx, "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if job.Status.Succeeded == 1 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

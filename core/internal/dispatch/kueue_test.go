package dispatch

import (
	"context"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/rig/cluster"
)

// Kueue itself: admitted, waiting with its reason, preempted and admitted again, and a queue that is not there.
func TestB26_B27_RealKueue(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Private: true, Kueue: true, CPU: "8", Specs: []cluster.Spec{{Name: "kueue"}}})[0]
	r := newReal(t, c)
	cluster.LocalQueue(t, c, r.namespace, "fast")
	r.start()

	submit := func(spec process.Spec) process.Version {
		t.Helper()
		spec.Image = "busybox"
		out, _, err := r.db.Submit(t.Context(), r.project, []process.NewVersion{{
			ID: newID(), AttemptID: newID(), ProcessID: newID(), ProcessName: "work", SubmittedBy: r.user, BodyHash: "x", Spec: spec,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0]
	}
	says := func(v process.Version, code, text string) process.Attempt {
		t.Helper()
		return r.until(v, code+" with "+text, func(a process.Attempt) bool { return a.ReasonCode == code && strings.Contains(a.Reason, text) })
	}

	big := submit(process.Spec{Command: []string{"true"}, QueueName: "fast", Requests: map[string]string{"cpu": "100k"}})
	says(big, evidence.QueueWaiting, "insufficient quota for cpu")
	nowhere := submit(process.Spec{Command: []string{"true"}, QueueName: "nowhere"})
	says(nowhere, evidence.QueueMissing, "has no LocalQueue nowhere")

	v := submit(process.Spec{Command: []string{"sleep", "3600"}, QueueName: "fast", Requests: map[string]string{"cpu": "1"}})
	row := r.state(v, process.Running)
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kueue := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: resource}
	}
	active := func(is string) {
		t.Helper()
		workloads := client.Resource(kueue("workloads")).Namespace(r.namespace)
		list, err := workloads.List(t.Context(), metav1.ListOptions{LabelSelector: jobUIDLabel + "=" + row.JobUID})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d Workloads of the Job: %v", len(list.Items), err)
		}
		patch := []byte(`{"spec":{"active":` + is + `}}`)
		if _, err := workloads.Patch(context.Background(), list.Items[0].GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	active("false")
	off := says(v, evidence.Preempted, "deactivated")
	if off.State != process.Queued || !off.RunEnded {
		t.Errorf("%+v", off)
	}
	active("true")
	if row := r.state(v, process.Running); row.Runs != 2 {
		t.Errorf("%d runs, want 2", row.Runs)
	}

	// Work of a higher priority takes all that the queue has, for a while.
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": map[string]any{"name": "urgent"}, "value": int64(1000),
	}}
	if _, err := client.Resource(kueue("workloadpriorityclasses")).Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	urgent := urgentJob("fast", "8")
	jobs := kubernetes.NewForConfigOrDie(config).BatchV1().Jobs(r.namespace)
	if _, err := jobs.Create(t.Context(), urgent, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if row := says(v, evidence.Preempted, "due to prioritization in the ClusterQueue"); row.State != process.Queued || !row.RunEnded {
		t.Errorf("%+v", row)
	}
	background := metav1.DeletePropagationBackground
	if err := jobs.Delete(t.Context(), urgent.Name, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	if row := r.state(v, process.Running); row.Runs != 3 {
		t.Errorf("%d runs, want 3", row.Runs)
	}
	for _, v := range []process.Version{v, big, nowhere} {
		r.cancel(v)
		r.state(v, process.Cancelled)
	}
	if got, want := r.history(v), []string{"creating", "queued", "running", "queued", "running", "queued", "running", "cancelling", "cancelled"}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
	r.created(4) // the urgent one too
}

// urgentJob asks for so many CPUs with the priority class "urgent".
func urgentJob(queue, cpu string) *batchv1.Job {
	suspended, none := true, int32(0)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "urgent", Labels: map[string]string{
			"kueue.x-k8s.io/queue-name": queue, "kueue.x-k8s.io/priority-class": "urgent",
		}},
		Spec: batchv1.JobSpec{Suspend: &suspended, BackoffLimit: &none, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"sleep", "3600"}, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		}}},
	}
}

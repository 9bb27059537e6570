package dispatch

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/rig/cluster"
)

// Kueue itself: admitted, waiting with its reason, preempted and admitted again, and a queue that is not there.
func TestB26_B27_RealKueue(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Private: true, Kueue: true, Specs: []cluster.Spec{{Name: "kueue"}}})[0]
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

	v := submit(process.Spec{Command: []string{"sleep", "3600"}, QueueName: "fast"})
	row := r.state(v, process.Running)
	active := func(is string) {
		t.Helper()
		config, err := c.RESTConfig()
		if err != nil {
			t.Fatal(err)
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		workloads := client.Resource(schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}).Namespace(r.namespace)
		list, err := workloads.List(t.Context(), metav1.ListOptions{LabelSelector: jobUIDLabel + "=" + row.JobUID})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d Workloads of the Job: %v", len(list.Items), err)
		}
		patch := []byte(`{"spec":{"active":` + is + `}}`)
		if _, err := workloads.Patch(context.Background(), list.Items[0].GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	active("false") // Kueue evicts it, as it does to make room
	off := says(v, evidence.Preempted, "deactivated")
	if off.State != process.Queued || !off.RunEnded {
		t.Errorf("%+v", off)
	}
	active("true")
	if row := r.state(v, process.Running); row.Runs != 2 {
		t.Errorf("%d runs, want 2", row.Runs)
	}
	for _, v := range []process.Version{v, big, nowhere} {
		r.cancel(v)
		r.state(v, process.Cancelled)
	}
	if got, want := r.history(v), []string{"creating", "queued", "running", "queued", "running", "cancelling", "cancelled"}; !slices.Equal(got, want) {
		t.Errorf("states %v, want %v", got, want)
	}
	r.created(3)
}

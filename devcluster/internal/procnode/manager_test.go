package procnode

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/reaper"
)

// rig is a manager of pods that is fed by hand and writes to a fake API.
type rig struct {
	m      *manager
	client *fake.Clientset
}

func newRig(t *testing.T) *rig {
	t.Helper()
	killer, err := reaper.Start() // the test binary is a reaper too
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	m := newManager(client, &launcher{thread: child.NewThread(), reaper: killer}, t.TempDir())
	for range 2 {
		go m.writeStatuses()
	}
	t.Cleanup(func() {
		m.dirty.ShutDown()
		killer.Close()
	})
	return &rig{m, client}
}

func (r *rig) add(t *testing.T, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "any", Command: []string{"true"}}},
		},
	}
	change(pod)
	if err := r.client.Tracker().Add(pod); err != nil {
		t.Fatal(err)
	}
	r.m.observe(pod.DeepCopy())
	return pod
}

func (r *rig) await(t *testing.T, name string, phase corev1.PodPhase) *corev1.Pod {
	t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(5 * time.Millisecond) {
		pod, err := r.client.CoreV1().Pods("ns").Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase == phase {
			return pod
		}
	}
	t.Fatalf("%s is not %s", name, phase)
	return nil
}

func (r *rig) patches(name string) int {
	count := 0
	for _, action := range r.client.Actions() {
		if patch, ok := action.(k8stesting.PatchAction); ok && patch.GetName() == name {
			count++
		}
	}
	return count
}

func script(text string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.Containers[0].Command = []string{"sh", "-c", text} }
}

func TestShortPodsNeedFewWrites(t *testing.T) {
	r := newRig(t)
	const count = 50
	for i := range count {
		r.add(t, fmt.Sprint("pod-", i), script("exit 0"))
	}
	patches := 0
	for i := range count {
		r.await(t, fmt.Sprint("pod-", i), corev1.PodSucceeded)
		patches += r.patches(fmt.Sprint("pod-", i))
	}
	if patches > 2*count {
		t.Errorf("%d writes for %d pods; want two at most for each", patches, count)
	}
}

func TestStatusSurvivesAFailingAPI(t *testing.T) {
	r := newRig(t)
	failures := 3
	r.client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		failures--
		return failures >= 0, nil, fmt.Errorf("the API server is away")
	})
	r.add(t, "pod", script("exit 7"))
	pod := r.await(t, "pod", corev1.PodFailed)
	if code := pod.Status.ContainerStatuses[0].State.Terminated.ExitCode; code != 7 {
		t.Errorf("exit code %d", code)
	}
}

func TestDeletionEndsTheObjectAfterTheProcess(t *testing.T) {
	r := newRig(t)
	pod := r.add(t, "pod", script("trap 'sleep 0.3; exit 5' TERM; sleep 100 & wait"))
	r.await(t, "pod", corev1.PodRunning)
	time.Sleep(100 * time.Millisecond) // the trap is set by then
	thirty, now := int64(30), metav1.Now()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &thirty
	r.m.observe(pod.DeepCopy())
	deleted := func() bool {
		for _, action := range r.client.Actions() {
			if action.GetVerb() == "delete" {
				return true
			}
		}
		return false
	}
	began := time.Now()
	for !deleted() {
		if time.Since(began) > 20*time.Second {
			t.Fatal("the object is not deleted")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the object was deleted after %s, before the process had ended", took)
	}
	// What the pod ended with was told before.
	status := r.m.find("ns", "pod").container("main").state.Terminated
	if status == nil || status.ExitCode != 5 {
		t.Errorf("ended with %+v; want exit code 5", status)
	}
	r.m.gone(pod.UID)
	for began := time.Now(); r.m.find("ns", "pod") != nil; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 5*time.Second {
			t.Fatal("the pod is not forgotten")
		}
	}
}

func TestGracePeriodCanOnlyShrink(t *testing.T) {
	r := newRig(t)
	pod := r.add(t, "pod", script("trap '' TERM; while true; do sleep 0.05; done"))
	r.await(t, "pod", corev1.PodRunning)
	began := time.Now()
	for _, seconds := range []int64{60, 90, 1} {
		seconds, now := seconds, metav1.Now()
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, &seconds
		r.m.observe(pod.DeepCopy())
	}
	<-r.m.find("ns", "pod").ended
	if took := time.Since(began); took < 900*time.Millisecond || took > 10*time.Second {
		t.Errorf("it was killed after %s; want the second that was said last", took)
	}
}

func TestPodsOfAnEarlierRunAreLost(t *testing.T) {
	r := newRig(t)
	r.add(t, "pod", func(pod *corev1.Pod) {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "main", RestartCount: 2,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
	})
	status := r.await(t, "pod", corev1.PodFailed).Status
	if end := status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 137 || status.ContainerStatuses[0].RestartCount != 2 {
		t.Errorf("%+v", status.ContainerStatuses[0])
	}
}

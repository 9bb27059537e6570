package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/nagelfluh/nagelfluh/core/internal/job"
)

func labelled(attempt string) map[string]string {
	return map[string]string{job.LabelAttempt: attempt, job.LabelInstallation: "i"}
}

func aJob(name, attempt string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "jobs", UID: types.UID("uid-" + name), Labels: labelled(attempt)}}
}

func aPod(name, attempt string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "jobs", UID: types.UID("uid-" + name), Labels: labelled(attempt)}}
}

// watched is a running watch and what it told.
type watched struct {
	*Watch
	mu        sync.Mutex
	changed   map[string]int
	syncs     int
	reachable []bool
}

func (w *watched) told(attempt string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed[attempt]
}
func (w *watched) turns() []bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]bool(nil), w.reachable...)
}

func runWatch(t *testing.T, client func(context.Context) (*Client, error), change ...func(*WatchOptions)) *watched {
	t.Helper()
	w := &watched{changed: map[string]int{}}
	o := WatchOptions{
		ClusterID: "c1", Client: client, Selector: job.Selector("i"),
		Changed:   func(id string) { w.mu.Lock(); defer w.mu.Unlock(); w.changed[id]++ },
		Synced:    func() { w.mu.Lock(); defer w.mu.Unlock(); w.syncs++ },
		Reachable: func(ok bool, _ error) { w.mu.Lock(); defer w.mu.Unlock(); w.reachable = append(w.reachable, ok) },
	}
	for _, f := range change {
		f(&o)
	}
	w.Watch = NewWatch(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Error("the watch does not end")
		}
	})
	return w
}

func of(set *fake.Clientset) func(context.Context) (*Client, error) {
	c := &Client{ClusterID: "c1", Namespace: "jobs", Clientset: set}
	return func(context.Context) (*Client, error) { return c, nil }
}

func TestWatchKeepsJobsAndPods(t *testing.T) {
	set := fake.NewClientset(aJob("one", "a1"), aPod("one-x", "a1"))
	w := runWatch(t, of(set))
	eventually(t, "synced", w.Synced)
	if j := w.Job("jobs", "one"); j == nil || j.UID != "uid-one" {
		t.Fatalf("job %v", j)
	}
	if pods := w.PodsOf("a1"); len(pods) != 1 || pods[0].Name != "one-x" {
		t.Fatalf("pods %v", pods)
	}
	if w.Job("other", "one") != nil || len(w.PodsOf("a2")) != 0 {
		t.Error("found what is not there")
	}

	ctx := t.Context()
	if _, err := set.BatchV1().Jobs("jobs").Create(ctx, aJob("two", "a2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second job", func() bool { return w.Job("jobs", "two") != nil && w.told("a2") > 0 })

	// B21: a deleted Job's last state can still be read.
	done := aJob("two", "a2")
	done.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	done.ResourceVersion = "5"
	if _, err := set.BatchV1().Jobs("jobs").Update(ctx, done, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := set.BatchV1().Jobs("jobs").Delete(ctx, "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "gone", func() bool { return w.Job("jobs", "two") == nil && w.Removed("uid-two") != nil })
	if last := w.Removed("uid-two"); len(last.Status.Conditions) != 1 {
		t.Errorf("last state %+v", last.Status)
	}
	if got := w.turns(); len(got) != 1 || !got[0] {
		t.Errorf("reachability told as %v, want once true", got)
	}
	if len(w.Jobs()) != 1 {
		t.Errorf("%d jobs", len(w.Jobs()))
	}
}

// B45: an outage is told once each way and what was known stays.
func TestWatchSurvivesOutage(t *testing.T) {
	set := fake.NewClientset(aJob("one", "a1"))
	var down atomic.Bool
	refuse := func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		if down.Load() {
			return true, nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return false, nil, nil
	}
	set.PrependReactor("list", "*", refuse)
	streams := &breakable{}
	set.PrependWatchReactor("*", func(clienttesting.Action) (bool, watch.Interface, error) {
		if down.Load() {
			return true, nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		}
		return true, streams.open(), nil
	})
	w := runWatch(t, of(set))
	eventually(t, "synced", w.Synced)
	down.Store(true)
	streams.breakAll()
	eventually(t, "unreachable", func() bool { got := w.turns(); return len(got) == 2 && !got[1] })
	if w.Job("jobs", "one") == nil {
		t.Error("an outage made a job vanish")
	}
	if w.Problem() == nil || Classify(w.Problem()) != Refused {
		t.Errorf("problem %v", w.Problem())
	}
	down.Store(false)
	eventually(t, "reachable again", func() bool { got := w.turns(); return len(got) == 3 && got[2] })
	eventually(t, "no problem any more", func() bool { return w.Problem() == nil })
}

// breakable hands out streams that can be ended.
type breakable struct {
	mu      sync.Mutex
	streams []*watch.FakeWatcher
}

func (b *breakable) open() watch.Interface {
	w := watch.NewFake()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.streams = append(b.streams, w)
	return w
}

func (b *breakable) breakAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.streams {
		w.Stop()
	}
	b.streams = nil
}

// each calls f with every open stream.
func (b *breakable) each(f func(*watch.FakeWatcher)) {
	b.mu.Lock()
	list := append([]*watch.FakeWatcher(nil), b.streams...)
	b.mu.Unlock()
	for _, w := range list {
		f(w)
	}
}

// B43: an expired version makes a new list; the Status object is no Job.
func TestWatchListsAgainWhenExpired(t *testing.T) {
	set := fake.NewClientset(aJob("one", "a1"))
	var lists atomic.Int32
	set.PrependReactor("list", "jobs", func(clienttesting.Action) (bool, k8sruntime.Object, error) { lists.Add(1); return false, nil, nil })
	streams := &breakable{}
	set.PrependWatchReactor("jobs", func(clienttesting.Action) (bool, watch.Interface, error) { return true, streams.open(), nil })
	w := runWatch(t, of(set))
	eventually(t, "synced", w.Synced)
	if err := set.Tracker().Add(aJob("two", "a2")); err != nil {
		t.Fatal(err)
	}
	expired := apierrors.NewResourceExpired("too old resource version")
	eventually(t, "a stream", func() bool { streams.mu.Lock(); defer streams.mu.Unlock(); return len(streams.streams) > 0 })
	streams.each(func(f *watch.FakeWatcher) { f.Error(&expired.ErrStatus) })
	eventually(t, "the missed job", func() bool { return w.Job("jobs", "two") != nil && w.told("a2") > 0 })
	if lists.Load() < 2 {
		t.Errorf("%d lists", lists.Load())
	}
}

// B43: expired for ever: the pauses grow.
func TestWatchBacksOff(t *testing.T) {
	set := fake.NewClientset()
	var requests atomic.Int32
	set.PrependReactor("list", "*", func(clienttesting.Action) (bool, k8sruntime.Object, error) {
		requests.Add(1)
		return true, nil, apierrors.NewInternalError(errors.New("for ever"))
	})
	runWatch(t, of(set))
	time.Sleep(3 * time.Second) // what is counted is how little happens in a time
	if n := requests.Load(); n > 12 {
		t.Errorf("%d requests in 3 s", n)
	}
}

// A missing client is no end; a replaced one starts the cache anew.
func TestWatchFollowsTheClient(t *testing.T) {
	first, second := fake.NewClientset(aJob("one", "a1")), fake.NewClientset(aJob("two", "a2"))
	var calls atomic.Int32
	done := make(chan struct{})
	w := runWatch(t, func(context.Context) (*Client, error) {
		switch calls.Add(1) {
		case 1:
			return nil, &ConnectError{"c1", errors.New("the provider is away")}
		case 2:
			return &Client{ClusterID: "c1", Namespace: "jobs", Clientset: first, link: &link{done: done, back: make(chan struct{})}}, nil
		default:
			return &Client{ClusterID: "c1", Namespace: "jobs", Clientset: second}, nil
		}
	})
	eventually(t, "the first cluster's job", func() bool { return w.Job("jobs", "one") != nil })
	close(done)
	eventually(t, "the second cluster's job alone", func() bool { return w.Job("jobs", "two") != nil && w.Job("jobs", "one") == nil && w.Synced() })
	if w.Removed("uid-one") != nil {
		t.Error("a job of the old endpoint counts as deleted")
	}
	if got := w.turns(); len(got) < 2 || got[0] || !got[1] {
		t.Errorf("reachability told as %v, want false, true", got)
	}
}

// The cache holds what is needed of an object and little more.
func TestWatchIsSmall(t *testing.T) {
	s := newShelf(trimPod)
	s.changed, s.seen, s.synced = func(string) {}, func() {}, func() {}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 1000 {
		p := aPod(fmt.Sprintf("pod-%04d", i), fmt.Sprintf("0199f0c2-0000-7000-8000-%012d", i))
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1(string(make([]byte, 4096)))}}
		p.Annotations = map[string]string{"big": string(make([]byte, 4096))}
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "i", Env: make([]corev1.EnvVar, 50)}}
		p.Spec.Volumes = make([]corev1.Volume, 10)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Image: "i", ImageID: string(make([]byte, 200))}}
		if err := s.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if per := int64(after.HeapAlloc-before.HeapAlloc) / 1000; per > 6<<10 {
		t.Errorf("%d bytes a pod", per)
	}
	runtime.KeepAlive(s)
}

// A name that comes back with another attempt is found under that one alone.
func TestShelfForgetsTheOldAttempt(t *testing.T) {
	s := newShelf(trimJob)
	s.changed, s.seen, s.synced = func(string) {}, func() {}, func() {}
	for _, attempt := range []string{"a1", "a2"} {
		j := aJob("one", attempt)
		j.UID = types.UID(attempt)
		if err := s.Add(j); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.of("a1")) != 0 || len(s.of("a2")) != 1 || len(s.all()) != 1 {
		t.Errorf("a1 has %d, a2 %d, in all %d", len(s.of("a1")), len(s.of("a2")), len(s.all()))
	}
	if err := s.Replace([]any{aJob("two", "a3")}, "9"); err != nil {
		t.Fatal(err)
	}
	if len(s.of("a2")) != 0 || len(s.of("a3")) != 1 || len(s.byAttempt) != 1 {
		t.Errorf("after a list: %d attempts", len(s.byAttempt))
	}
}

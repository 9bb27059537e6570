package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestB37AskedBeforeTheContainerRuns(t *testing.T) {
	r := newRig(t, nil)
	r.rows.set(id, func(a *process.Attempt) { a.State, a.ClusterID = process.Placing, "c" })
	g := r.read(FollowOptions{Follow: true})
	noted := func(text string) func() bool {
		return func() bool { return slices.Contains(g.notes(), text) }
	}
	g.await("placing", noted("placing"))
	state := func(s process.State, code, reason string) {
		r.rows.set(id, func(a *process.Attempt) { a.State, a.ReasonCode, a.Reason = s, code, reason })
	}
	state(process.Queued, "", "")
	g.await("queued", noted("queued"))
	r.ensure(pod("pod", waiting("main", "ContainerCreating")))
	state(process.Queued, "container_creating", "ContainerCreating")
	g.await("creating", noted("queued: ContainerCreating"))
	state(process.Queued, "image_pull", `ImagePullBackOff: Back-off pulling image "x"`)
	g.await("image pull", noted(`queued: ImagePullBackOff: Back-off pulling image "x"`))

	// It is said to run, but the log endpoint is not there yet; then it is refused; then it comes.
	r.k.print("pod/main", lines(1, 100)...)
	r.k.faults(func(request) fault {
		return fault{status: 400, reason: metav1.StatusReasonBadRequest, message: `container "main" in pod "pod" is waiting to start: PodInitializing`}
	})
	r.ensure(pod("pod", running("main")))
	state(process.Running, "", "")
	r.k.await(t, "a first try", func() bool { return r.k.opens["pod/main"] > 1 })
	r.k.faults(func(request) fault {
		return fault{status: 403, reason: metav1.StatusReasonForbidden, message: `pods "pod" is forbidden: no`}
	})
	g.await("forbidden", func() bool {
		return slices.ContainsFunc(g.notes(), func(n string) bool { return strings.Contains(n, "is forbidden") })
	})
	r.k.faults(nil)
	r.k.end("pod/main")
	r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	if got := g.wait(); got != text(lines(1, 100)) {
		t.Error(differ(got, text(lines(1, 100))))
	}
	if e := g.end(); e.State != process.Succeeded || !e.Complete || !g.last.End {
		t.Errorf("end %+v, cursor %s", e, g.last)
	}
	for i, n := range g.notes() {
		if i > 0 && n == g.notes()[i-1] {
			t.Error("said twice:", n)
		}
	}
}

func TestB37CancelledWhileWaiting(t *testing.T) {
	r := newRig(t, nil)
	r.rows.set(id, func(a *process.Attempt) { a.State, a.JobUID = process.Placing, "" })
	g := r.read(FollowOptions{Follow: true})
	g.await("a note", func() bool { return len(g.chunks) > 0 })
	r.rows.set(id, func(a *process.Attempt) { a.State = process.Cancelled })
	if got := g.wait(); got != "" || g.end().State != process.Cancelled {
		t.Errorf("%q, %+v", got, g.end())
	}
	// Resuming behind the end is refused, so that no browser starts anew.
	if _, err := r.reader.Follow(t.Context(), id, FollowOptions{After: g.last}); !errors.Is(err, ErrCursor) {
		t.Error(err)
	}
}

func TestB41FailedInitContainerStandsForThePod(t *testing.T) {
	r := newRig(t, nil)
	code := int32(1)
	r.k.print("pod/fetch", lines(1, 20)...)
	p := func(fetch corev1.ContainerStatus) *corev1.Pod {
		return pod("pod", statusOf("init:fetch", fetch), waiting("main", "PodInitializing"), waiting("side", "PodInitializing"))
	}
	g := r.read(FollowOptions{Follow: true})
	main := r.read(FollowOptions{Follow: true, Container: "main"})
	fetch := r.read(FollowOptions{Follow: true, Container: "fetch"})
	r.ensure(p(running("fetch")))
	fetch.awaitBytes(len(text(lines(1, 20))))
	r.k.end("pod/fetch")
	r.rows.set(id, func(a *process.Attempt) { a.ExitCode = &code })
	m := r.finish(process.Failed, p(exited("fetch", 1)))
	for name, reading := range map[string]*reading{"default": g, "fetch": fetch} {
		if got := reading.wait(); got != text(lines(1, 20)) {
			t.Error(name, differ(got, text(lines(1, 20))))
		}
	}
	if got := main.wait(); got != "" || !slices.Contains(main.notes(), "container main has not started") {
		t.Errorf("main: %q, %q", got, main.notes())
	}
	if c := m.Pods[0].Containers[0]; c.Name != "fetch" || c.Role != RoleInit || c.ExitCode == nil || *c.ExitCode != 1 {
		t.Errorf("%+v", c)
	}
	_, err := r.reader.Follow(t.Context(), id, FollowOptions{Container: "nosuch"})
	var unknown *UnknownContainerError
	if !errors.As(err, &unknown) || strings.Join(unknown.Known, " ") != "fetch main side" {
		t.Error(err)
	}
}

func TestB41DefaultIsMain(t *testing.T) {
	r := newRig(t, nil)
	for i, c := range []string{"fetch", "main", "side"} {
		r.k.print("pod/"+c, lines(i*100, i*100+10)...)
		r.k.end("pod/" + c)
	}
	p := pod("pod", exited("init:fetch", 0), exited("main", 0), exited("side", 0))
	g := r.read(FollowOptions{Follow: true})
	r.ensure(p)
	r.finish(process.Succeeded, p)
	if got := g.wait(); got != text(lines(100, 110)) {
		t.Error(differ(got, text(lines(100, 110))))
	}
	for i, c := range []string{"fetch", "main", "side"} {
		if got := r.read(FollowOptions{Container: c}).wait(); got != text(lines(i*100, i*100+10)) {
			t.Error(c, got)
		}
	}
}

func statusOf(name string, s corev1.ContainerStatus) corev1.ContainerStatus {
	s.Name = name
	return s
}

func TestSeveralPodsInOrder(t *testing.T) {
	r := newRig(t, nil)
	r.k.print("pod-b/main", lines(1, 10)...)
	r.k.end("pod-b/main")
	g := r.read(FollowOptions{Follow: true})
	first := pod("pod-b", exited("main", 1))
	r.ensure(first)
	g.awaitBytes(len(text(lines(1, 10))))
	second := pod("pod-a", exited("main", 0))
	second.CreationTimestamp = metav1.NewTime(t0.Add(time.Minute))
	r.k.print("pod-a/main", lines(11, 20)...)
	r.k.end("pod-a/main")
	r.ensure(second)
	g.awaitBytes(len(text(lines(1, 20))))
	r.finish(process.Succeeded, first, second)
	if got := g.wait(); got != text(lines(1, 20)) {
		t.Error(differ(got, text(lines(1, 20))))
	}
	var heads []string
	for _, c := range g.chunks {
		if c.Kind == ChunkPod {
			heads = append(heads, fmt.Sprint(c.Cursor.Pod, c.PodNumber))
		}
	}
	if strings.Join(heads, " ") != "pod-b1 pod-a2" {
		t.Error(heads)
	}
	three := int64(3)
	if got := r.read(FollowOptions{Tail: &three}).wait(); got != text(lines(18, 20)) {
		t.Errorf("tail: %q", got)
	}
	if got := r.read(FollowOptions{Pod: "pod-b"}).wait(); got != text(lines(1, 10)) {
		t.Errorf("one pod: %q", got)
	}
	if _, err := r.reader.Follow(t.Context(), id, FollowOptions{Pod: "other"}); !errors.Is(err, ErrNoPod) {
		t.Error(err)
	}
	seq, _ := r.reader.Follow(t.Context(), id, FollowOptions{})
	var out strings.Builder
	if err := WriteText(&out, func() error { return nil }, false, seq); err != nil {
		t.Fatal(err)
	}
	if want := text(lines(1, 10)) + "==> pod pod-a, container main <==\n" + text(lines(11, 20)); out.String() != want {
		t.Error(differ(out.String(), want))
	}
}

func TestTwoHundredReadersOneUpstream(t *testing.T) {
	r := newRig(t, nil)
	var readings []*reading
	for range 200 {
		readings = append(readings, r.read(FollowOptions{Follow: true}))
	}
	// One that does not read holds up nobody.
	ctx, cancel := context.WithCancel(t.Context())
	stuck, err := r.reader.Follow(ctx, id, FollowOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range stuck {
			<-ctx.Done()
		}
	}()
	r.ensure(pod("pod", running("main")))
	for i := range 10 {
		r.k.print("pod/main", lines(i*10+1, i*10+10)...)
		for _, g := range readings {
			g.awaitBytes(len(text(lines(1, i*10+10))))
		}
	}
	r.k.mu.Lock()
	if n := r.k.opens["pod/main"]; n != 1 {
		t.Errorf("%d upstream follows", n)
	}
	r.k.mu.Unlock()
	r.k.end("pod/main")
	r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	for _, g := range readings {
		if got := g.wait(); got != text(lines(1, 100)) {
			t.Fatal(differ(got, text(lines(1, 100))))
		}
	}
	cancel()
	<-done
}

func TestHeartbeatAndNoFollow(t *testing.T) {
	r := newRig(t, nil)
	r.k.print("pod/main", lines(1, 5)...)
	g := r.read(FollowOptions{Follow: true, Heartbeat: time.Millisecond})
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(lines(1, 5))))
	beats := 0
	g.await("heartbeats", func() bool {
		beats = 0
		for _, c := range g.chunks {
			if c.Kind == ChunkHeartbeat {
				beats++
			}
		}
		return beats > 3
	})
	r.rows.set(id, func(a *process.Attempt) { a.State = process.Running })
	now := r.read(FollowOptions{})
	if got := now.wait(); got != text(lines(1, 5)) || now.end().State != process.Running || now.end().Complete || now.last.End {
		t.Errorf("%q %+v", got, now.end())
	}
	g.cancel()
	<-g.done
}

func TestTail(t *testing.T) {
	r := newRig(t, nil)
	want := append(lines(1, 9), printed{at: t0, text: strings.Repeat("z", 200_000)})
	r.k.print("pod/main", want...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(want)))
	check := func() {
		for n, expect := range map[int64]string{0: "", 1: want[9].text, 2: text(want[8:]), 10: text(want), 11: text(want), 1 << 40: text(want)} {
			if got := r.read(FollowOptions{Tail: &n}).wait(); got != expect {
				t.Error(n, differ(got, expect))
			}
		}
	}
	check()
	r.k.end("pod/main")
	r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	check()
}

func TestMissing(t *testing.T) {
	r := newRig(t, nil)
	if _, err := r.reader.Follow(t.Context(), "other", FollowOptions{}); !errors.Is(err, process.ErrNotFound) {
		t.Error(err)
	}
	r.k.print("pod/main", lines(1, 5)...)
	r.k.end("pod/main")
	r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	if err := os.RemoveAll(filepath.Join(r.archive.dir, id)); err != nil {
		t.Fatal(err)
	}
	seq, err := r.reader.Follow(t.Context(), id, FollowOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range seq {
		if !errors.Is(err, ErrMissing) {
			t.Error(err)
		}
	}
}

func TestCloseEndsFollowsAndReaders(t *testing.T) {
	r := newRig(t, nil)
	r.k.print("pod/main", lines(1, 5)...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(lines(1, 5))))
	_ = r.keeper.Close()
	<-g.done
	if !errors.Is(g.err, ErrClosed) {
		t.Error(g.err)
	}
	r.k.await(t, "no upstream", func() bool { return r.k.open == 0 })
	_ = r.keeper.Close()
	r.ensure(pod("pod", running("main")))
	if err := r.keeper.Finish(t.Context(), r.attempt(), nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

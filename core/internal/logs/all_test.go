package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// versionRig is a version with attempts.
type versionRig struct {
	*rig
	mu   sync.Mutex
	made []string
}

func attemptID(n int) string { return fmt.Sprintf("%s%d", id[:35], n) }

func (v *versionRig) add(n int) {
	v.rows.set(attemptID(n), func(a *process.Attempt) {
		*a = process.Attempt{ID: attemptID(n), VersionID: "v", Number: int32(n), ClusterID: "c", Namespace: "jobs", State: process.Running, JobUID: "u"}
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	v.made = append(v.made, attemptID(n))
}

func (v *versionRig) list(ctx context.Context) (all []process.Attempt, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, made := range v.made {
		a, err := v.rows.Attempt(ctx, made)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

func (v *versionRig) run(n int, state process.State, next bool, out ...printed) {
	v.t.Helper()
	name := fmt.Sprint("pod-", n)
	v.k.print(name+"/main", out...)
	v.k.end(name + "/main")
	p := pod(name, exited("main", 0))
	a, _ := v.rows.Attempt(v.t.Context(), attemptID(n))
	v.keeper.Ensure(a, []*corev1.Pod{p})
	if next {
		v.add(n + 1) // as in the transaction that ends this one
	}
	a = v.rows.set(attemptID(n), func(a *process.Attempt) { a.State = state })
	if err := v.keeper.Finish(v.t.Context(), a, []*corev1.Pod{p}); err != nil {
		v.t.Fatal(err)
	}
	v.rows.set(attemptID(n), func(a *process.Attempt) { a.LogsStored = true })
}

type heard struct {
	text    string
	kinds   string
	pieces  []string
	cursors []Cursor // behind each piece
	end     *End
	last    Cursor
}

func (v *versionRig) all(o FollowOptions) (h heard, err error) {
	seq, err := All(v.t.Context(), v.reader, v.list, o)
	if err != nil || seq == nil {
		return h, err
	}
	for c, err := range seq {
		if err != nil {
			return h, err
		}
		switch c.Kind {
		case ChunkAttempt:
			h.kinds += fmt.Sprint(c.Attempt.Number, " ")
		case ChunkPod:
			h.kinds += c.Cursor.Pod + " "
		case ChunkData:
			h.text += string(c.Data)
			h.pieces, h.cursors = append(h.pieces, string(c.Data)), append(h.cursors, c.Cursor)
		case ChunkEnd:
			h.end, h.last = c.End, c.Cursor
			h.kinds += "end"
		}
	}
	return h, nil
}

func TestAllAttempts(t *testing.T) {
	v := &versionRig{rig: newRig(t, nil)}
	v.add(1)
	type result struct {
		h   heard
		err error
	}
	following := make(chan result, 1)
	go func() {
		h, err := v.all(FollowOptions{Follow: true})
		following <- result{h, err}
	}()
	v.run(1, process.Failed, true, lines(1, 10)...)
	v.run(2, process.Failed, true, lines(11, 20)...)
	v.run(3, process.Succeeded, false, lines(21, 30)...)
	live := <-following
	if live.err != nil {
		t.Fatal(live.err)
	}
	want := text(lines(1, 30))
	if h := live.h; h.text != want || h.kinds != "1 pod-1 2 pod-2 3 pod-3 end" || h.end.State != process.Succeeded || !h.end.Complete || !h.last.End {
		t.Errorf("%s; %q, %+v", differ(h.text, want), h.kinds, h.end)
	}
	// Resumed behind any chunk, as it was sent: no gap, no double.
	for i, c := range live.h.cursors {
		after, err := ParseCursor(c.String())
		if err != nil {
			t.Fatal(err)
		}
		rest, err := v.all(FollowOptions{Follow: true, After: after})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(live.h.pieces[:i+1], "") + rest.text; got != want || rest.end == nil {
			t.Errorf("resumed at %s: %s", c, differ(got, want))
		}
	}
	if seq, err := All(t.Context(), v.reader, v.list, FollowOptions{After: live.h.last}); seq != nil || err != nil {
		t.Error("something follows the end:", err)
	}
	if _, err := v.all(FollowOptions{After: Cursor{AttemptID: "other", Pod: "p", Container: "main"}}); !errors.Is(err, ErrCursor) {
		t.Error(err)
	}
	three := int64(3)
	if h, err := v.all(FollowOptions{Tail: &three}); err != nil || h.text != text(lines(28, 30)) || h.kinds != "3 pod-3 end" {
		t.Errorf("tail: %+v, %v", h, err)
	}
	// A fourth attempt that has not started: the tail is of the third; and one that had the end goes on with it.
	v.add(4)
	if h, err := v.all(FollowOptions{Tail: &three}); err != nil || h.text != text(lines(28, 30)) || h.kinds != "3 pod-3 4 end" || h.last.End || h.end.Complete {
		t.Errorf("tail: %+v, %v", h, err)
	}
	if h, err := v.all(FollowOptions{After: live.h.last}); err != nil || h.text != "" || h.kinds != "4 end" {
		t.Errorf("behind the end: %+v, %v", h, err)
	}
	seq, err := All(t.Context(), v.reader, v.list, FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := WriteText(&out, func() error { return nil }, false, seq); err != nil {
		t.Fatal(err)
	}
	headed := "==> attempt 1 <==\n" + text(lines(1, 10)) + "==> attempt 2 <==\n" + text(lines(11, 20)) + "==> attempt 3 <==\n" + text(lines(21, 30)) + "==> attempt 4 <==\n"
	if out.String() != headed {
		t.Error(differ(out.String(), headed))
	}
}

// One attempt as a whole, and each container instance alone, byte for byte.
func TestAllContainersAndEachInstance(t *testing.T) {
	r := newRig(t, nil)
	bytes := map[string]string{
		"pod-a/fetch": "fetched\xff\x00\r", "pod-a/main": "broke\n", "pod-a/side/previous": "side 0\n", "pod-a/side": "side 1", "pod-b/fetch": "", "pod-b/main": "done\n", "pod-b/side": "s\n",
	}
	for key, text := range bytes {
		var l []printed
		if text != "" {
			l = append(l, printed{at: t0, text: text})
		}
		r.k.print(key, l...)
		r.k.end(key)
	}
	again := exited("side", 0)
	again.RestartCount, again.LastTerminationState = 1, corev1.ContainerState{Terminated: exited("side", 2).State.Terminated}
	a := pod("pod-a", exited("init:fetch", 0), exited("main", 1), again)
	b := pod("pod-b", exited("init:fetch", 0), exited("main", 0), exited("side", 0))
	b.CreationTimestamp = metav1.NewTime(t0.Add(1e9))
	r.ensure(a, b)
	r.finish(process.Succeeded, a, b)
	download := func(o FollowOptions) string {
		t.Helper()
		seq, err := r.reader.Follow(t.Context(), id, o)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := WriteText(&out, func() error { return nil }, o.AllContainers, seq); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	zero, one, two := int32(0), int32(1), int32(2)
	for want, o := range map[string]FollowOptions{
		bytes["pod-a/fetch"]:         {Pod: "pod-a", Container: "fetch"},
		bytes["pod-a/main"]:          {Pod: "pod-a", Container: "main"},
		bytes["pod-a/side/previous"]: {Pod: "pod-a", Container: "side", Restart: &zero},
		bytes["pod-a/side"]:          {Pod: "pod-a", Container: "side", Restart: &one},
		bytes["pod-b/fetch"]:         {Pod: "pod-b", Container: "fetch"},
		"side 0\n==> pod pod-a, container side (restart 1) <==\nside 1": {Pod: "pod-a", Container: "side"},
		"==> pod pod-a, container fetch <==\nfetched\xff\x00\r\n==> pod pod-a, container main <==\nbroke\n" +
			"==> pod pod-a, container side <==\nside 0\n==> pod pod-a, container side (restart 1) <==\nside 1\n" +
			"==> pod pod-b, container fetch <==\n==> pod pod-b, container main <==\ndone\n==> pod pod-b, container side <==\ns\n": {AllContainers: true},
	} {
		if got := download(o); got != want {
			t.Error(differ(got, want))
		}
	}
	if _, err := r.reader.Follow(t.Context(), id, FollowOptions{Container: "side", Restart: &two}); !errors.Is(err, ErrNoInstance) {
		t.Error(err)
	}
	for key, want := range bytes { // and the archive's objects are the same bytes
		parts := strings.Split(key, "/")
		restart := int32(0)
		if key == "pod-a/side" {
			restart = 1
		}
		body, err := r.archive.Open(t.Context(), id, parts[0], parts[1], restart, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
}

package logs

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// lines gives a hundred lines a second: 1 to 99 stand in second 0, 100 to 199 in second 1.
func TestSince(t *testing.T) {
	r := newRig(t, nil)
	first, second := pod("pod-a", running("main")), pod("pod-b", running("main"))
	second.CreationTimestamp = metav1.NewTime(t0.Add(4 * time.Second))
	r.k.print("pod-a/main", lines(1, 350)...)
	r.k.print("pod-b/main", lines(400, 650)...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(first)
	g.awaitBytes(len(text(lines(1, 350))))
	live := r.read(FollowOptions{Follow: true, Since: t0.Add(2 * time.Second)})
	live.awaitBytes(len(text(lines(200, 350))))
	check := func(when string) {
		t.Helper()
		ten := int64(10)
		for name, c := range map[string]struct {
			o    FollowOptions
			want []printed
			pods int
		}{
			"before all":         {FollowOptions{Since: t0.Add(-time.Hour)}, append(lines(1, 350), lines(400, 650)...), 2},
			"within the first":   {FollowOptions{Since: t0.Add(1700 * time.Millisecond)}, append(lines(100, 350), lines(400, 650)...), 2},
			"only the second":    {FollowOptions{Since: t0.Add(5 * time.Second)}, lines(500, 650), 1},
			"behind all":         {FollowOptions{Since: t0.Add(time.Hour)}, nil, -1},
			"with a tail":        {FollowOptions{Since: t0.Add(5 * time.Second), Tail: &ten}, lines(641, 650), 1},
			"fewer than a tail":  {FollowOptions{Since: t0.Add(6 * time.Second), Tail: &ten}, lines(641, 650), 1},
			"one pod":            {FollowOptions{Since: t0.Add(3 * time.Second), Pod: "pod-a"}, lines(300, 350), 1},
			"ignored on resume":  {FollowOptions{Since: t0.Add(time.Hour), After: Cursor{AttemptID: id, Pod: "pod-b", Container: "main"}}, lines(400, 650), 1},
			"second that is not": {FollowOptions{Since: t0.Add(3900 * time.Millisecond), Pod: "pod-b"}, lines(400, 650), 1},
		} {
			g := r.read(c.o)
			if got := g.wait(); got != text(c.want) {
				t.Errorf("%s, %s: %s", when, name, differ(got, text(c.want)))
			}
			pods := 0
			for _, c := range g.chunks {
				if c.Kind == ChunkPod {
					pods++
				}
			}
			if c.pods >= 0 && pods != c.pods {
				t.Errorf("%s, %s: %d pods announced, want %d", when, name, pods, c.pods)
			}
		}
	}
	r.k.end("pod-a/main")
	ended := []*corev1.Pod{pod("pod-a", exited("main", 1)), pod("pod-b", exited("main", 0))}
	ended[1].CreationTimestamp = second.CreationTimestamp
	r.ensure(ended[0], second)
	g.awaitBytes(len(text(lines(1, 350))) + len(text(lines(400, 650))))
	check("live")
	r.restart()
	r.ensure(ended[0], second)
	again := r.read(FollowOptions{Follow: true})
	again.awaitBytes(len(text(lines(1, 350))) + len(text(lines(400, 650))))
	check("after a restart")
	r.k.end("pod-b/main")
	r.finish(process.Succeeded, ended...)
	again.wait()
	check("archived")
	live.cancel()
	<-live.done
	if got, want := live.text.String(), text(lines(200, 350)); len(got) < len(want) || got[:len(want)] != want {
		t.Error("follower:", differ(got, want))
	}
}

// What a crash leaves beyond the journal has no stamps: a reader gets it in any case.
func TestSinceAfterACrash(t *testing.T) {
	r := newRig(t, nil)
	r.k.print("pod/main", lines(1, 350)...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(lines(1, 350))))
	_ = r.keeper.Close()
	path := spoolDir(r.o.SpoolDir, id) + "/pod/main.log"
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("unknown when\n"); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	r.restart()
	r.k.faults(func(request) fault {
		return fault{status: 404, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`}
	})
	m := r.finish(process.Unknown, pod("pod", running("main")))
	gap := checkGap(t, r, m, GapPodGone)
	// How much of it the journal had vouched for is a matter of time.
	end := "unknown when\n[nagelfluh] " + gap.Reason + "\n"
	got := r.read(FollowOptions{Since: t0.Add(time.Hour)}).wait()
	if !strings.HasSuffix(r.stored("pod", "main"), got) || !strings.HasSuffix(got, end) {
		t.Errorf("got %q, want it to end with %q", got, end)
	}
}

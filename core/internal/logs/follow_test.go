package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// b35 is 1000 lines: 498 to 503 share one second and two of them one stamp; 300 and 301 have the same text.
func b35() []printed {
	list := lines(1, 1000)
	base := list[497].at.Truncate(time.Second)
	for i := 498; i <= 503; i++ {
		list[i-1].at = base.Add(time.Duration(i) * time.Microsecond)
	}
	list[500].at = list[499].at
	list[300].text = list[299].text
	for i := 504; i <= 1000; i++ {
		list[i-1].at = base.Add(time.Second + time.Duration(i)*time.Millisecond)
	}
	return list
}

func TestB35CutStreamsLeaveNeitherGapNorDouble(t *testing.T) {
	cuts := map[string]fault{
		"in order":                {cut: true, lines: 500},
		"broken":                  {cut: true, lines: 500, abort: true},
		"within a stamp":          {cut: true, lines: 500, bytes: 17},
		"within a line":           {cut: true, lines: 500, bytes: 34, abort: true},
		"within a line, in order": {cut: true, lines: 499, bytes: 36},
		"between equal stamps":    {cut: true, lines: 500, bytes: 31},
		"silent":                  {cut: true, lines: 500, bytes: 33, freeze: true},
		"connection closed":       {cut: true, lines: 500, bytes: 36, drop: true},
		"GOAWAY":                  {cut: true, lines: 500, bytes: 36, goaway: true, abort: true},
	}
	for name, cut := range cuts {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *KeeperOptions) { o.Stall = 200 * time.Millisecond })
			want := b35()
			r.k.print("pod/main", want...)
			r.k.faults(func(q request) fault {
				if q.n == 1 {
					return cut
				}
				return fault{}
			})
			g := r.read(FollowOptions{Follow: true})
			r.ensure(pod("pod", running("main")))
			g.awaitBytes(len(text(want)))
			r.k.end("pod/main")
			m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
			if got := g.wait(); got != text(want) {
				t.Errorf("reader: %s", differ(got, text(want)))
			}
			if got := r.stored("pod", "main"); got != text(want) {
				t.Errorf("archive: %s", differ(got, text(want)))
			}
			if !m.Complete() || !g.end().Complete {
				t.Errorf("not complete: %+v", m)
			}
		})
	}
}

// A log that is read again after a cut is not called unreadable any more: neither beside each of its lines, nor to those
// who come later.
func TestB35TroubleEndsWithTheNextAnswer(t *testing.T) {
	r := newRig(t, nil)
	want := lines(1, 40)
	r.k.print("pod/main", want[:20]...)
	r.k.faults(func(request) fault { return fault{status: 500, message: "no kubelet"} })
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	unreadable := func(g *reading) (n int) {
		for _, c := range g.chunks {
			if c.Code == "log-unreadable" {
				n++
			}
		}
		return n
	}
	g.await("the trouble", func() bool { return unreadable(g) > 0 })
	r.k.faults(nil)
	for i := 20; i < 40; i++ {
		g.awaitBytes(len(text(want[:i])))
		r.k.print("pod/main", want[i])
	}
	g.awaitBytes(len(text(want)))
	late := r.read(FollowOptions{Follow: true})
	late.awaitBytes(len(text(want)))
	r.k.end("pod/main")
	r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	g.wait()
	late.wait()
	if n := unreadable(g); n != 1 {
		t.Errorf("said %d times that the log cannot be read: %q", n, g.notes())
	}
	if n := unreadable(late); n != 0 {
		t.Errorf("a later reader is told that the log cannot be read: %q", late.notes())
	}
}

// Any number of cuts anywhere, with stamps out of order, equal, and over second borders.
func TestB35RandomCuts(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r := newRig(t, nil)
			at := t0
			var want []printed
			for i := range 400 {
				at = at.Add(time.Duration(rnd.IntN(40)) * time.Millisecond)
				stamp := at
				if rnd.IntN(8) == 0 {
					stamp = at.Add(-time.Duration(rnd.IntN(900)) * time.Millisecond)
				}
				want = append(want, printed{at: stamp, text: fmt.Sprintf("%d %s\n", i, strings.Repeat("x", rnd.IntN(50)))})
			}
			want[399].text = strings.TrimSuffix(want[399].text, "\n")
			r.k.print("pod/main", want...)
			r.k.end("pod/main")
			r.k.faults(func(q request) fault {
				if q.n > 30 {
					return fault{}
				}
				return fault{cut: true, lines: rnd.IntN(120), bytes: rnd.IntN(60), abort: rnd.IntN(2) == 0}
			})
			r.ensure(pod("pod", running("main")))
			r.k.await(t, "some answers", func() bool { return r.k.opens["pod/main"] > 3 })
			if seed%2 == 0 {
				r.restart()
			}
			r.finish(process.Succeeded, pod("pod", exited("main", 0)))
			if got := r.stored("pod", "main"); got != text(want) {
				t.Error(differ(got, text(want)))
			}
		})
	}
}

func TestB35ClockStepsBack(t *testing.T) {
	r := newRig(t, nil)
	want := lines(1, 300)
	for i := 100; i < 300; i++ {
		want[i].at = want[i].at.Add(-time.Hour)
	}
	r.k.print("pod/main", want...)
	r.k.end("pod/main")
	r.k.faults(func(q request) fault { return fault{cut: q.n < 4, lines: 90 + 60*q.n, bytes: 33} })
	r.ensure(pod("pod", running("main")))
	m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	if got := r.stored("pod", "main"); got != text(want) || !m.Complete() {
		t.Error(differ(got, text(want)))
	}
}

func TestB35ServerRestartAndReaderResume(t *testing.T) {
	r := newRig(t, nil)
	want := b35()
	r.k.print("pod/main", want[:502]...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(want[:502])))
	g.cancel()
	<-g.done
	if !errors.Is(g.err, context.Canceled) {
		t.Error("a reader that leaves:", g.err)
	}

	r.restart()
	r.k.print("pod/main", want[502:]...)
	r.k.end("pod/main")
	after, err := ParseCursor(g.last.String())
	if err != nil {
		t.Fatal(err)
	}
	rest := r.read(FollowOptions{Follow: true, After: after})
	r.ensure(pod("pod", running("main")))
	r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	if got := g.text.String() + rest.wait(); got != text(want) {
		t.Error(differ(got, text(want)))
	}
	// The same position again, now from the archive.
	if got := g.text.String() + r.read(FollowOptions{Follow: true, After: after}).wait(); got != text(want) {
		t.Error("archive:", differ(got, text(want)))
	}
}

func TestB36LongLines(t *testing.T) {
	r := newRig(t, nil)
	var want []printed
	for i, n := range []int{65_537, 300_000, 5_000_000} {
		want = append(want,
			printed{at: t0.Add(time.Duration(i) * time.Second), text: strings.Repeat("L", n) + "\n"},
			printed{at: t0.Add(time.Duration(i) * time.Second), text: "after\n"})
	}
	want = append(want, printed{at: t0.Add(time.Minute), text: strings.Repeat("no newline ", 5<<20/11)})
	r.k.print("pod/main", want...)
	r.k.print("pod/side", lines(1, 10)...)
	r.k.end("pod/side")
	r.k.end("pod/main")
	r.k.faults(func(q request) fault {
		if q.key == "pod/main" && q.n == 1 {
			return fault{cut: true, lines: 4, bytes: 3_000_000, abort: true} // within the longest
		}
		return fault{}
	})
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main"), running("side")))
	m := r.finish(process.Succeeded, pod("pod", exited("main", 0), exited("side", 0)))
	if got := g.wait(); got != text(want) {
		t.Error(differ(got, text(want)))
	}
	if got := r.stored("pod", "side"); got != text(lines(1, 10)) {
		t.Error("side:", differ(got, text(lines(1, 10))))
	}
	if !m.Complete() {
		t.Errorf("not complete: %+v", m)
	}
}

func TestB39AnyBytes(t *testing.T) {
	r := newRig(t, nil)
	all := strings.Repeat("a", 16_383) + "\xe2\x96\x88" + "\xff\xfe\x00" + "\x00\x1b[31mred\x1b[0m" + "10%\r20%\r" +
		"\ndata: x\n\nid: 5\r\n\r\nevent: end\n</script>\n"
	var want []printed
	for _, l := range strings.SplitAfter(all, "\n") {
		if l != "" {
			want = append(want, printed{at: t0, text: l})
		}
	}
	r.k.print("pod/main", want...)
	r.k.end("pod/main")
	r.ensure(pod("pod", exited("main", 0)))
	r.finish(process.Succeeded, pod("pod", exited("main", 0)))
	if got := r.stored("pod", "main"); got != all {
		t.Error(differ(got, all))
	}
	seq, err := r.reader.Follow(t.Context(), id, FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteText(&out, func() error { return nil }, false, seq); err != nil {
		t.Fatal(err)
	}
	if out.String() != all {
		t.Error("download:", differ(out.String(), all))
	}
	// As events: one each, no character split, and the bytes come back whole.
	if seq, err = r.reader.Follow(t.Context(), id, FollowOptions{}); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := WriteSSE(&out, func() error { return nil }, seq); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "</script>") {
		t.Error("HTML is not escaped")
	}
	if got := decoded(t, out.String()); got != all {
		t.Error("events:", differ(got, all))
	}
}

func TestEndedBeforeConnected(t *testing.T) {
	r := newRig(t, nil)
	r.k.print("pod/main", lines(1, 50)...)
	r.k.print("quiet/main")
	r.k.end("pod/main")
	r.k.end("quiet/main")
	m := r.finish(process.Succeeded, pod("pod", exited("main", 0)), pod("quiet", exited("main", 0)))
	if got := r.stored("pod", "main"); got != text(lines(1, 50)) || r.stored("quiet", "main") != "" || !m.Complete() {
		t.Errorf("got %q, %+v", got, m)
	}
	if n := r.k.opens["quiet/main"]; n != 1 {
		t.Errorf("%d reads of an empty log", n)
	}
}

// A container that has just started is given a moment before its log is opened; a cancel takes that moment away, for the
// log goes with the pod.
func TestCancelledAtTheStart(t *testing.T) {
	r := newRig(t, func(o *KeeperOptions) { o.FollowAfter = time.Hour })
	r.k.print("pod/main", lines(1, 3)...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	r.rows.set(id, func(a *process.Attempt) { a.State = process.Cancelling })
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(lines(1, 3))))
	r.k.end("pod/main")
	if m := r.finish(process.Cancelled, pod("pod", exited("main", 143))); !m.Complete() || r.stored("pod", "main") != text(lines(1, 3)) {
		t.Errorf("stored %q, %+v", r.stored("pod", "main"), m)
	}
}

// What a crash leaves: the file is ahead of the journal, or behind it, or holds zeros.
func TestCrash(t *testing.T) {
	damage := map[string]func(t *testing.T, s *spool){
		"nothing": func(*testing.T, *spool) {},
		"half a record": func(t *testing.T, s *spool) {
			_, _ = s.journal.WriteAt([]byte(`{"size": 12`), s.journalAt)
		},
		"zeros": func(t *testing.T, s *spool) {
			_, _ = s.data.WriteAt(make([]byte, 5000), s.size)
			_, _ = s.data.WriteAt(make([]byte, 100), s.size-100)
		},
		"cut short": func(t *testing.T, s *spool) { _ = s.data.Truncate(s.size / 2) },
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			want := lines(1, 20_000)
			r.k.print("pod/main", want[:15_000]...)
			g := r.read(FollowOptions{Follow: true})
			r.ensure(pod("pod", running("main")))
			g.awaitBytes(len(text(want[:15_000])))
			_ = r.keeper.Close()
			s, err := openSpool(spoolDir(r.o.SpoolDir, id) + "/pod/main.log")
			if err != nil {
				t.Fatal(err)
			}
			f(t, s)
			s.close()
			r.restart()
			r.k.print("pod/main", want[15_000:]...)
			r.k.end("pod/main")
			m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
			if got := r.stored("pod", "main"); got != text(want) || !m.Complete() {
				t.Error(differ(got, text(want)))
			}
		})
	}
	t.Run("the pod is gone too", func(t *testing.T) {
		r := newRig(t, nil)
		r.k.print("pod/main", lines(1, 3000)...)
		g := r.read(FollowOptions{Follow: true})
		r.ensure(pod("pod", running("main")))
		g.awaitBytes(len(text(lines(1, 3000))))
		_ = r.keeper.Close()
		s, err := openSpool(spoolDir(r.o.SpoolDir, id) + "/pod/main.log")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = s.data.WriteAt(make([]byte, 5000), s.tail) // as a power cut may
		s.close()
		r.restart()
		r.k.faults(func(request) fault {
			return fault{status: 404, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`}
		})
		m := r.finish(process.Unknown)
		gap := checkGap(t, r, m, GapPodGone)
		if got, want := r.stored("pod", "main"), text(lines(1, 3000))+"[nagelfluh] "+gap.Reason+"\n"; got != want {
			t.Error(differ(got, want))
		}
	})
	t.Run("a container that printed nothing", func(t *testing.T) {
		r := newRig(t, nil)
		r.k.end("pod/main")
		r.ensure(pod("pod", exited("main", 0)))
		if err := r.keeper.live(id).drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(spoolDir(r.o.SpoolDir, id) + "/pod"); !errors.Is(err, os.ErrNotExist) {
			t.Error("there are files for nothing:", err)
		}
		_ = r.keeper.Close()
		r.restart()
		r.k.faults(func(request) fault {
			return fault{status: 404, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`}
		})
		if m := r.finish(process.Succeeded); !m.Complete() || r.stored("pod", "main") != "" {
			t.Error("what had been read to its end is not complete after a restart:", m)
		}
	})
	t.Run("between archive and database", func(t *testing.T) {
		r := newRig(t, nil)
		r.k.print("pod/main", lines(1, 10)...)
		r.k.end("pod/main")
		stale := r.attempt()
		r.finish(process.Succeeded, pod("pod", exited("main", 0)))
		r.keeper.Ensure(stale, []*corev1.Pod{pod("pod", exited("main", 0))})
		if r.keeper.live(id) != nil {
			t.Error("a row read before took the attempt up again")
		}
		r.restart()
		r.rows.set(id, func(a *process.Attempt) { a.LogsStored = false })
		r.ensure(pod("pod", exited("main", 0)))
		r.finish(process.Succeeded)
		if got := r.stored("pod", "main"); got != text(lines(1, 10)) {
			t.Errorf("got %q", got)
		}
	})
}

func TestFrozenClusterBlocksOnlyItself(t *testing.T) {
	r := newRig(t, func(o *KeeperOptions) { o.Reads, o.Follows = 1, 1 })
	r.k.faults(func(q request) fault { return fault{freeze: !strings.HasPrefix(q.key, "good")} })
	for i := range 5 {
		frozen := process.Attempt{ID: fmt.Sprintf("%s%d", id[:35], i+2), ClusterID: "frozen", Namespace: "jobs"}
		r.k.print(fmt.Sprintf("bad%d/main", i))
		r.keeper.Ensure(frozen, []*corev1.Pod{pod(fmt.Sprintf("bad%d", i), exited("main", 0))})
	}
	r.k.await(t, "a frozen read", func() bool { return r.k.open == 1 })
	r.k.print("good/main", lines(1, 10)...)
	r.k.end("good/main")
	if m := r.finish(process.Succeeded, pod("good", exited("main", 0))); !m.Complete() {
		t.Errorf("%+v", m)
	}
}

func TestRestartedContainer(t *testing.T) {
	r := newRig(t, nil)
	first, second := lines(1, 100), lines(200, 300)
	r.k.print("pod/main", first[:50]...)
	g := r.read(FollowOptions{Follow: true})
	r.ensure(pod("pod", running("main")))
	g.awaitBytes(len(text(first[:50])))
	// The container dies and is started again; its log is now the previous one.
	r.k.print("pod/main/previous", first...)
	r.k.end("pod/main/previous")
	r.k.faults(func(q request) fault {
		if q.previous {
			return fault{}
		}
		return fault{freeze: true}
	})
	r.k.srv.CloseClientConnections()
	again := running("main")
	again.RestartCount = 1
	again.LastTerminationState.Terminated = exited("main", 3).State.Terminated
	r.ensure(pod("pod", again))
	g.awaitBytes(len(text(first)))
	r.k.mu.Lock()
	r.k.logs["pod/main"] = &tape{lines: second, ended: true}
	r.k.mu.Unlock()
	r.k.faults(nil)
	done := exited("main", 0)
	done.RestartCount, done.LastTerminationState = 1, again.LastTerminationState
	m := r.finish(process.Succeeded, pod("pod", done))
	if got, want := g.wait(), text(first)+text(second); got != want {
		t.Error(differ(got, want))
	}
	if n := len(m.Pods[0].Containers); n != 2 || !m.Complete() {
		t.Errorf("%+v", m)
	}
}

func differ(got, want string) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	cut := func(s string) string { return s[max(0, min(n, len(s))-30):min(len(s), n+30)] }
	return fmt.Sprintf("%d bytes, want %d; from byte %d on: got …%q, want …%q", len(got), len(want), n, cut(got), cut(want))
}

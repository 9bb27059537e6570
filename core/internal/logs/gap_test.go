package logs

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestGapsAreSaid(t *testing.T) {
	t.Run("pod gone", func(t *testing.T) {
		r := newRig(t, nil)
		r.k.print("pod/main", lines(1, 10)...)
		g := r.read(FollowOptions{Follow: true})
		r.ensure(pod("pod", running("main")))
		g.awaitBytes(len(text(lines(1, 10))))
		r.k.faults(func(request) fault {
			return fault{status: 404, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`}
		})
		r.k.srv.CloseClientConnections()
		m := r.finish(process.Unknown)
		gap := checkGap(t, r, m, GapPodGone)
		if want := text(lines(1, 10)) + "[nagelfluh] " + gap.Reason + "\n"; g.wait() != want || g.end().Complete {
			t.Error(differ(g.text.String(), want))
		}
	})
	t.Run("pod gone after an orderly end", func(t *testing.T) {
		// An API server that loses the kubelet ends its answer in order; only the container's end makes it the log's end.
		for _, ended := range []bool{false, true} {
			r := newRig(t, nil)
			r.k.print("pod/main", lines(1, 10)...)
			r.k.faults(func(q request) fault {
				if q.n > 1 {
					return fault{status: 404, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`}
				}
				return fault{cut: true, lines: 9, bytes: 200}
			})
			r.ensure(pod("pod", running("main")))
			r.k.await(t, "the answer", func() bool { return r.k.opens["pod/main"] == 1 && r.k.open == 0 })
			if ended {
				m := r.finish(process.Cancelled, pod("pod", exited("main", 143)))
				if got := r.stored("pod", "main"); got != text(lines(1, 10)) || !m.Complete() {
					t.Error(differ(got, text(lines(1, 10))))
				}
				continue
			}
			checkGap(t, r, r.finish(process.Unknown), GapPodGone)
		}
	})
	t.Run("rotated while cut", func(t *testing.T) {
		r := newRig(t, nil)
		r.k.print("pod/main", lines(1, 1000)...)
		r.k.end("pod/main")
		r.k.faults(func(q request) fault {
			if q.n == 2 {
				r.k.tape("pod/main").rotated = 700
			}
			return fault{cut: q.n == 1, lines: 500}
		})
		r.ensure(pod("pod", running("main")))
		m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
		gap := checkGap(t, r, m, GapRotated)
		want := text(lines(1, 500)) + "[nagelfluh] " + gap.Reason + "\n" + text(lines(701, 1000))
		if got := r.stored("pod", "main"); got != want {
			t.Error(differ(got, want))
		}
	})
	t.Run("rotated without loss", func(t *testing.T) {
		r := newRig(t, nil)
		want := lines(1, 1000)
		for i := 540; i < 555; i++ {
			want[i].at = want[540].at // the cut is among equal stamps
		}
		r.k.print("pod/main", want...)
		r.k.end("pod/main")
		r.k.faults(func(q request) fault {
			if q.n == 2 {
				r.k.tape("pod/main").rotated = 520 // within the second that is asked for again
			}
			return fault{cut: q.n == 1, lines: 550, bytes: 35}
		})
		r.ensure(pod("pod", running("main")))
		m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
		if got := r.stored("pod", "main"); got != text(want) || !m.Complete() {
			t.Error(differ(got, text(want)))
		}
	})
	t.Run("quota", func(t *testing.T) {
		r := newRig(t, func(o *KeeperOptions) { o.Quota = 100 })
		r.k.print("pod/main", lines(1, 1000)...)
		r.ensure(pod("pod", running("main")))
		m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
		gap := checkGap(t, r, m, GapQuota)
		want := text(lines(1, 1000))[:100] + "\n[nagelfluh] " + gap.Reason + "\n"
		if got := r.stored("pod", "main"); got != want {
			t.Error(differ(got, want))
		}
	})
	t.Run("kubelet has no log", func(t *testing.T) {
		r := newRig(t, func(o *KeeperOptions) { o.FinishTimeout = time.Second })
		r.k.print("pod/main", printed{raw: true, text: "unable to retrieve container logs for containerd://abc"})
		r.k.end("pod/main")
		r.ensure(pod("pod", exited("main", 0)))
		m := r.finish(process.Failed, pod("pod", exited("main", 0)))
		if gap := checkGap(t, r, m, GapRefused); !strings.Contains(gap.Reason, "containerd://abc") {
			t.Error(gap.Reason)
		}
	})
	t.Run("frozen", func(t *testing.T) {
		r := newRig(t, func(o *KeeperOptions) { o.FinishTimeout, o.ReadStall = 300*time.Millisecond, 50*time.Millisecond })
		r.k.print("pod/main", lines(1, 10)...)
		r.k.faults(func(request) fault { return fault{freeze: true} })
		r.ensure(pod("pod", running("main")))
		m := r.finish(process.Failed, pod("pod", exited("main", 1)))
		checkGap(t, r, m, GapTimeout)
	})
}

func checkGap(t *testing.T, r *rig, m Manifest, code string) Gap {
	t.Helper()
	if len(m.Pods) != 1 || len(m.Pods[0].Containers[0].Gaps) != 1 {
		t.Fatalf("want one gap: %+v", m)
	}
	gap := m.Pods[0].Containers[0].Gaps[0]
	if gap.Code != code || m.Complete() {
		t.Errorf("gap %+v, want %s", gap, code)
	}
	if all := r.stored("pod", "main"); !strings.HasPrefix(strings.TrimPrefix(all[gap.Offset:], "\n"), "[nagelfluh] ") {
		t.Errorf("no marker at %d: %q", gap.Offset, all[max(0, gap.Offset-20):])
	}
	return gap
}

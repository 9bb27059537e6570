package logs

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// awaitBegun waits until it is written down how the log began.
func (r *rig) awaitBegun() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := r.archive.begun(ctx, id)
		if err == nil && b.First["pod/main.log"] != 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.t.Fatalf("it says %+v, %v", b, err)
		}
	}
}

// nextServer replaces the Keeper by one of another server, which has no spool.
func (r *rig) nextServer() {
	r.t.Helper()
	r.o.SpoolDir = filepath.Join(r.t.TempDir(), "spool")
	r.restart()
}

// What the next leader can still read of a log carries a mark when its beginning is missing, and none when it is not. A
// reader goes on at the same place, or at the mark.
func TestNextLeaderMarksALostBeginning(t *testing.T) {
	const read = 600 // lines that the first leader had read
	for name, rotated := range map[string]int{"whole": 0, "lost": 300, "lost beyond the reader": 800} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *KeeperOptions) { o.Shared = true })
			r.k.print("pod/main", lines(1, read)...)
			r.ensure(pod("pod", running("main")))
			g := r.read(FollowOptions{Follow: true})
			g.awaitBytes(len(text(lines(1, read))))
			r.awaitBegun()
			r.nextServer()
			<-g.done
			r.k.print("pod/main", lines(read+1, 1000)...)
			r.k.mu.Lock()
			r.k.tape("pod/main").rotated = rotated
			r.k.mu.Unlock()
			r.ensure(pod("pod", running("main")))
			again := r.read(FollowOptions{Follow: true, After: g.last})
			r.k.end("pod/main")
			m := r.finish(process.Succeeded, pod("pod", exited("main", 0)))
			stored := r.stored("pod", "main")
			if rotated == 0 {
				if want := text(lines(1, 1000)); stored != want || !m.Complete() || again.wait() != text(lines(read+1, 1000)) {
					t.Error(differ(stored, want), again.text.String())
				}
				return
			}
			gap := checkGap(t, r, m, GapRotated)
			want := "[nagelfluh] " + gap.Reason + "\n" + text(lines(rotated+1, 1000))
			if stored != want || gap.Offset != 0 {
				t.Error(differ(stored, want), gap)
			}
			if got := again.wait(); got != want {
				t.Error(differ(got, want))
			}
			// From the archive a position of the first leader leads to the same.
			if got := r.read(FollowOptions{Follow: true, After: g.last}).wait(); got != want {
				t.Error(differ(got, want))
			}
			if b, err := r.archive.begun(t.Context(), id); err != nil || b.First != nil {
				t.Error("left over:", b, err)
			}
		})
	}
}

// A pod that went with the leader is known to the next one.
func TestNextLeaderMarksALostPod(t *testing.T) {
	r := newRig(t, func(o *KeeperOptions) { o.Shared = true })
	r.k.print("pod/main", lines(1, 10)...)
	r.ensure(pod("pod", running("main")))
	r.awaitBegun()
	r.k.faults(func(request) fault {
		return fault{status: 404, reason: metav1.StatusReasonNotFound, message: `pods "pod" not found`}
	})
	r.nextServer()
	m := r.finish(process.Unknown)
	checkGap(t, r, m, GapPodGone)
}

// What an attempt printed in this term alone costs no question to the archive, and neither does an installation of one
// server.
func TestOwnAttemptIsNotRecalled(t *testing.T) {
	for _, shared := range []bool{false, true} {
		r := newRig(t, func(o *KeeperOptions) { o.Shared = shared })
		a := r.rows.set(id, func(a *process.Attempt) {
			later := time.Now().Add(2 * clocks)
			a.JobAt = &later
		})
		if got, err := r.keeper.attempt(a); err != nil || !got.hasRecalled() {
			t.Error(shared, err)
		}
	}
}

func TestPlace(t *testing.T) {
	lost := func(offset, origin int64) Gap { return Gap{Offset: offset, Code: GapRotated, Origin: origin} }
	end := func(offset int64) Gap { return Gap{Offset: offset, Code: GapPodGone} }
	at := func(offset, origin int64) Cursor { return Cursor{Offset: offset, Origin: origin} }
	for name, c := range map[string]struct {
		gaps  []Gap
		at    Cursor
		to    Cursor
		again bool
	}{
		"nothing lost":                         {nil, at(500, 0), at(500, 0), false},
		"before the loss":                      {[]Gap{lost(600, 7)}, at(500, 0), at(500, 0), false},
		"at the loss":                          {[]Gap{lost(600, 7)}, at(600, 0), at(600, 0), false},
		"behind the same loss":                 {[]Gap{lost(600, 7)}, at(700, 7), at(700, 7), false},
		"lost here, read there":                {[]Gap{lost(0, 7)}, at(500, 0), at(0, 0), false},
		"behind a loss that is not here":       {[]Gap{lost(300, 7)}, at(500, 9), at(0, 0), true},
		"in a stretch that ends earlier here":  {[]Gap{lost(0, 7), lost(400, 9)}, at(500, 7), at(400, 7), false},
		"in a stretch that begins later here":  {[]Gap{lost(600, 7)}, at(500, 7), at(600, 0), false},
		"behind the end that could not be had": {[]Gap{end(800)}, at(1200, 0), at(800, 0), false},
		"behind an end":                        {nil, at(1200, 0), at(1000, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			if to, again := place(c.gaps, c.at, 1000); to != c.to || again != c.again {
				t.Errorf("to %d in %d, again: %t", to.Offset, to.Origin, again)
			}
		})
	}
}

func TestCursorBehindALoss(t *testing.T) {
	c := Cursor{AttemptID: id, Pod: "pod", Container: "main", Offset: 5, Origin: 1_800_000_000_123_456_789}
	if got, err := ParseCursor(c.String()); err != nil || got != c {
		t.Error(got, err)
	}
	for _, bad := range []string{"~", "~0", "~-1", "~!", "~zzzzzzzzzzzzzzzzz"} {
		if got, err := ParseCursor(id + "/pod/main.0@5" + bad); err == nil {
			t.Error(bad, got)
		}
	}
}

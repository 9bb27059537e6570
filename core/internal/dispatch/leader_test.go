package dispatch

import (
	"net/http"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// A leader is paused after it has made sure that it leads and before its create request leaves. The next one makes the
// Job, and the late request makes no second one; nor does it bring a cancelled attempt to life.
func TestB46_LateCreateOfAPausedLeader(t *testing.T) {
	for name, cancelled := range map[string]bool{"the next one made it": false, "cancelled meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			r, a := newRig(t), newAPI(t)
			r.add("c", a)
			paused, resume := make(chan struct{}), make(chan struct{})
			var once sync.Once
			r.options.May = func() bool {
				once.Do(func() { close(paused); <-resume })
				return true // as it was before the pause
			}
			r.start()
			v := r.submit(1)[0]
			<-paused
			old, oldDone := r.d, r.done

			r.options.May, r.options.Ledger = nil, placement.NewLedger()
			if cancelled {
				r.cancel(v)
			}
			r.start() // the next leader
			want, jobs := process.Queued, 1
			if cancelled {
				want, jobs = process.Cancelled, 0
			}
			r.state(v, want)

			close(resume)
			old.Stop()
			if err := <-oldDone; err != nil {
				t.Error(err)
			}
			r.when("no Job too many", func() bool { return a.count() == jobs }, func() any { return a.count() })
			if row := r.attempt(v); row.State != want || !cancelled && string(a.only().UID) != row.JobUID {
				t.Errorf("the attempt is %s of Job %q", row.State, row.JobUID)
			}
		})
	}
}

// A server that may not lead any more makes no Job.
func TestNoCreateWithoutTheLease(t *testing.T) {
	r, a := newRig(t), newAPI(t)
	r.add("c", a)
	asked := make(chan struct{}, 64)
	r.options.May = func() bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		return false
	}
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if isPost(q) {
			t.Error("a create request left")
		}
		next(w, q)
	})
	r.start()
	v := r.submit(1)[0]
	<-asked
	<-asked // it goes on trying, in case it leads again
	if row := r.attempt(v); row.State != process.Creating || a.count() != 0 {
		t.Errorf("it is %s with %d Jobs", row.State, a.count())
	}
}

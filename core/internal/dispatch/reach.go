package dispatch

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

const (
	probeTimeout = 5 * time.Second
	probeFirst   = 500 * time.Millisecond
	probeMost    = 10 * time.Second
)

// reach knows whether the cluster answers. One call that goes wrong says little: it may be a slow webhook. So it makes
// a cheap request, and only when that gets no proper answer either is the cluster taken for unreachable: then no other
// call is made until a probe succeeds. Thus ten thousand attempts of a dead cluster cost one request at a time.
type reach struct {
	w  *worker
	wg sync.WaitGroup

	mu      sync.Mutex
	probing bool
	closed  bool
	since   time.Time // of the first failure, by the clock of the outage; zero: none
	flagged bool      // for long enough that attempts are flagged
	cause   error
	opened  time.Time // when it last answered again
}

func newReach(w *worker) *reach { return &reach{w: w} }

// wait ends when the probe has; the context must have ended before.
func (r *reach) wait() {
	r.mu.Lock()   // after this nobody starts a probe that has not seen the context end
	r.mu.Unlock() //nolint:staticcheck // see above
	r.wg.Wait()
}

// note takes the outcome of a call.
func (r *reach) note(err error) {
	if err != nil && unanswered(err) {
		r.doubt(err)
	}
}

func (r *reach) doubt(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() {
		r.since, r.cause = r.noticed(err), err
	}
	if r.probing || r.w.ctx.Err() != nil {
		return
	}
	r.probing = true
	r.wg.Go(func() { r.probe(r.w.ctx) })
}

// noticed starts the clock of the cluster's outage, when it is one, and says since when it runs. An API server that
// answers with errors, or does not know us, is there.
func (r *reach) noticed(err error) time.Time {
	now := r.w.d.now()
	if class := kube.Classify(err); !class.Unreachable() && class != kube.NotKubernetes {
		return now
	}
	return r.w.d.o.Outages.Notice(r.w.id, now)
}

// probe asks until there is an answer.
func (r *reach) probe(ctx context.Context) {
	pause := probeFirst
	for {
		err := r.w.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			r.open()
			return
		}
		r.close(err)
		timer := r.w.d.o.Clock.NewTimer(pause*9/10 + rand.N(pause/5))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
		pause = min(pause*2, probeMost)
	}
}

func (r *reach) close(err error) {
	r.mu.Lock()
	first := !r.closed
	r.closed, r.cause = true, err
	now := r.w.d.now()
	since := r.noticed(err)
	if r.since.IsZero() || since.Before(r.since) {
		r.since = since
	}
	flag := !r.flagged && now.Sub(r.since) >= r.w.d.o.UnreachableAfter
	r.flagged = r.flagged || flag
	r.mu.Unlock()
	if first {
		r.w.log.Info("the cluster does not answer; its attempts wait", "error", err)
	}
	if flag {
		r.w.wakeAll()
	}
}

func (r *reach) open() {
	r.mu.Lock()
	r.w.d.o.Outages.Answered(r.w.id)
	closed, since := r.closed, r.since
	r.probing, r.closed, r.flagged, r.since, r.cause = false, false, false, time.Time{}, nil
	if closed {
		r.opened = r.w.d.now()
	}
	r.mu.Unlock()
	if !closed {
		return
	}
	outage := r.w.d.now().Sub(since)
	r.w.log.Info("the cluster answers again", "after", outage.Round(time.Millisecond))
	r.w.wakeAll()
}

// returned says when the cluster last answered again after it had not; zero: it always did.
func (r *reach) returned() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// blocked says whether calls are to wait.
func (r *reach) blocked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// answers says whether nothing speaks against the cluster.
func (r *reach) answers() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since.IsZero()
}

// down says since when the cluster has been unreachable and why; nil: it is not, or not for long enough to say so.
func (r *reach) down() (since *time.Time, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.flagged {
		return nil, nil
	}
	at := r.since
	return &at, r.cause
}

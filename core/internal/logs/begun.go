package logs

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
)

// begun is what servers tell each other, by the archive, about an attempt whose log is being followed: its pods, and how
// its logs began. A spool is its server's own, so without this the next leader could not tell a log whose beginning the
// cluster has dropped from one that begins there. It is written once an attempt has lived for a moment, and when there is
// news of its pods; what it says is old, never wrong.
type begun struct {
	Pods []PodLog `json:"pods"`
	// First are the stamps of the logs' first lines, by streamKey.String.
	First map[string]int64 `json:"first,omitempty"`
}

// beginning is the reason of the gap at the start of a log. It is the same at every server, so that their logs are too.
const beginning = "the beginning is missing here: the cluster no longer had it when another server went on with this log"

func (k streamKey) String() string { return k.pod + "/" + fileName(k.container, k.restart) }

func begunKey(attemptID string) string { return attemptID + "/begun.json" }

// begun reads what servers before wrote down; nothing is no error.
func (a *Archive) begun(ctx context.Context, attemptID string) (b begun, err error) {
	data, err := a.bucket.ReadAll(ctx, begunKey(attemptID))
	if gcerrors.Code(err) == gcerrors.NotFound {
		return b, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	if err != nil {
		return b, fmt.Errorf("read how the log of attempt %s began: %w", attemptID, err)
	}
	return b, nil
}

func (a *Archive) setBegun(ctx context.Context, attemptID string, data []byte) error {
	if err := a.bucket.WriteAll(ctx, begunKey(attemptID), data, &blob.WriterOptions{ContentType: "application/json"}); err != nil {
		return fmt.Errorf("write how the log of attempt %s began: %w", attemptID, err)
	}
	return nil
}

// dropBegun removes what the stored log makes needless.
func (a *Archive) dropBegun(ctx context.Context, attemptID string) error {
	if err := a.bucket.Delete(ctx, begunKey(attemptID)); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("remove how the log of attempt %s began: %w", attemptID, err)
	}
	return nil
}

// shareTimeout bounds one reading or writing of begun.
const shareTimeout = 20 * time.Second

// recall takes up what servers before wrote down. Until it has, nothing is followed: what is missing could not be told.
func (t *attempt) recall() {
	for wait := t.k.o.RetryMin; ; wait = min(2*wait, t.k.o.RetryMax) {
		b, err := t.readBegun()
		if err == nil {
			t.take(b)
			return
		}
		if t.ctx.Err() != nil {
			return
		}
		t.k.log.Warn("the archive cannot be asked what was read of a log before; it is followed afterwards", "attempt", t.id, "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-t.ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (t *attempt) readBegun() (begun, error) {
	free, err := t.k.turn(t.ctx)
	if err != nil {
		return begun{}, err
	}
	defer free()
	ctx, cancel := context.WithTimeout(t.ctx, shareTimeout)
	defer cancel()
	return t.k.o.Archive.begun(ctx, t.id)
}

func (t *attempt) take(b begun) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.past = b.First
	for _, p := range b.Pods {
		if known := t.pod(p.Name); known != nil {
			known.merge(p)
			continue
		}
		t.m.Pods = append(t.m.Pods, p)
		if t.unseen == nil {
			t.unseen = map[string]bool{}
		}
		t.unseen[p.Name] = true
	}
	sortPods(t.m.Pods)
	close(t.recalled)
	if !t.released {
		t.startStreams()
	}
	t.changed.wake()
}

func (t *attempt) hasRecalled() bool {
	select {
	case <-t.recalled:
		return true
	default:
		return false
	}
}

// shareSoon has begun written down where others need it.
func (t *attempt) shareSoon() {
	if t.k.o.Shared {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.saveSoon()
	}
}

// share writes begun, behind what is being written already. The caller holds the lock and has seen that the attempt is not
// released.
func (t *attempt) share() {
	if !t.k.o.Shared || !t.hasRecalled() {
		return
	}
	if t.sharing {
		t.shareAgain = true
		return
	}
	m, streams := t.describe()
	b := begun{Pods: m.Pods, First: map[string]int64{}}
	for _, p := range b.Pods { // describe has made copies
		for i := range p.Containers {
			c := &p.Containers[i]
			if s := streams[streamKey{pod: p.Name, container: c.Name, restart: c.Restart}]; s != nil {
				s.mu.Lock()
				if s.first != 0 {
					b.First[s.key.String()] = s.first
				}
				s.mu.Unlock()
			}
			// The bytes are not there for others.
			c.Complete = c.Complete && c.Bytes == 0
			c.Bytes, c.Gaps, c.Times = 0, nil, Times{}
		}
	}
	data, err := json.Marshal(b)
	if err != nil {
		return // of such values it is not possible
	}
	t.sharing = true
	t.wg.Go(func() {
		if err := t.writeBegun(data); err != nil && t.ctx.Err() == nil {
			t.k.log.Warn("the next leader may not see what was read of a log", "attempt", t.id, "error", err)
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sharing = false
		if t.shareAgain {
			t.shareAgain = false
			t.saveSoon()
		}
	})
}

func (t *attempt) writeBegun(data []byte) error {
	free, err := t.k.turn(t.ctx)
	if err != nil {
		return err
	}
	defer free()
	ctx, cancel := context.WithTimeout(t.ctx, shareTimeout)
	defer cancel()
	return t.k.o.Archive.setBegun(ctx, t.id, data)
}

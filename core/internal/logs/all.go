package logs

import (
	"context"
	"iter"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// Follower reads the log of one attempt, as Reader does.
type Follower interface {
	Follow(ctx context.Context, attemptID string, o FollowOptions) (iter.Seq2[Chunk, error], error)
}

// All returns the logs of all attempts of a version as one sequence: each attempt is announced by a ChunkAttempt, and there is
// one ChunkEnd, the last attempt's; it is complete when all that was given is. With Follow it goes on with attempts that are
// made meanwhile. Attempts lists the version's in order.
//
// After resumes in the attempt that the cursor names, behind an end with the attempt after it; with none after it the
// sequence is nil: nothing follows. Tail is of the newest part of all.
func All(ctx context.Context, f Follower, attempts func(context.Context) ([]process.Attempt, error), o FollowOptions) (iter.Seq2[Chunk, error], error) {
	list, err := attempts(ctx)
	if err != nil {
		return nil, err
	}
	at := 0
	switch {
	case o.After != (Cursor{}):
		for at < len(list) && list[at].ID != o.After.AttemptID {
			at++
		}
		if at == len(list) {
			return nil, ErrCursor
		}
		if o.After.End {
			if at++; at == len(list) {
				return nil, nil
			}
			o.After, o.Tail, o.Since = Cursor{}, nil, time.Time{}
		}
	case o.Tail != nil:
		if at, err = newest(ctx, f, list, o); err != nil {
			return nil, err
		}
	}
	seq, err := f.Follow(ctx, list[at].ID, o) // refusals come before anything is given
	if err != nil {
		return nil, err
	}
	return func(yield func(Chunk, error) bool) {
		complete := true
		for {
			a := list[at]
			if !yield(Chunk{Kind: ChunkAttempt, Attempt: &a}, nil) {
				return
			}
			for c, err := range seq {
				if err == nil && c.Kind == ChunkEnd {
					complete = complete && c.End.Complete
					if list, err = attempts(ctx); err == nil && at+1 < len(list) {
						break
					}
					end := *c.End
					end.Complete = complete
					c.End = &end
				}
				if !yield(c, err) || err != nil || c.Kind == ChunkEnd {
					return
				}
			}
			if at++; at >= len(list) {
				return
			}
			// These began after all that is left out.
			o.After, o.Tail = Cursor{}, nil
			if seq, err = f.Follow(ctx, list[at].ID, o); err != nil {
				yield(Chunk{}, err)
				return
			}
		}
	}, nil
}

// newest is the last attempt in which anything has started, or the first.
func newest(ctx context.Context, f Follower, list []process.Attempt, o FollowOptions) (int, error) {
	o.Follow = false
	none := int64(0)
	o.Tail = &none
	for at := len(list) - 1; at > 0; at-- {
		seq, err := f.Follow(ctx, list[at].ID, o)
		if err != nil {
			return 0, err
		}
		for c, err := range seq {
			if err != nil {
				return 0, err
			}
			if c.Kind == ChunkPod {
				return at, nil
			}
		}
	}
	return 0, nil
}

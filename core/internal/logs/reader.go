package logs

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// ReaderOptions configure a Reader. Archive and Attempts are required.
type ReaderOptions struct {
	Archive  *Archive
	Attempts Attempts
	// Keeper gives what is not in the archive yet; nil at a replica that does not lead, whose readers then see nothing of a
	// live attempt but its state.
	Keeper *Keeper
	// Settle is the shortest time between two looks at an attempt's state by one reader; default 250 ms.
	Settle time.Duration
}

// Reader serves logs to any number of readers at once; none of them holds up a follow or another reader. Safe for
// concurrent use. It has no state of its own and needs no closing.
type Reader struct{ o ReaderOptions }

// NewReader returns a Reader.
func NewReader(o ReaderOptions) *Reader {
	if o.Settle <= 0 {
		o.Settle = 250 * time.Millisecond
	}
	return &Reader{o: o}
}

// Follow returns the log of an attempt as a sequence that may be ranged over once. It ends after a ChunkEnd, after an
// error, or when the caller breaks off; a ctx that ends gives its cause as the error.
//
// Errors before anything is read: process.ErrNotFound, ErrCursor, ErrNoPod, ErrNoInstance, *UnknownContainerError. The last four may come
// within the sequence too, when the pods were not known before.
func (r *Reader) Follow(ctx context.Context, attemptID string, o FollowOptions) (iter.Seq2[Chunk, error], error) {
	if o.After.End {
		return nil, fmt.Errorf("%w: it is the end", ErrCursor)
	}
	if c := o.After; c != (Cursor{}) {
		if c.AttemptID != attemptID || o.Restart != nil && c.Restart != *o.Restart || o.Pod != "" && c.Pod != o.Pod || o.Container != "" && c.Container != o.Container {
			return nil, ErrCursor
		}
	}
	a, err := r.o.Attempts.Attempt(ctx, attemptID)
	if err != nil {
		return nil, err
	}
	v, err := r.view(ctx, a)
	if err != nil {
		return nil, err
	}
	if err := v.check(o); err != nil {
		return nil, err
	}
	return func(yield func(Chunk, error) bool) {
		newSession(r, attemptID, o, yield).run(ctx)
	}, nil
}

// view is what there is of an attempt at one moment: in the archive, or live, or nothing yet.
type view struct {
	m       Manifest
	streams map[streamKey]*stream // of a live attempt
	closed  bool                  // no further pods will come, or it is in the archive
	changed <-chan struct{}       // something of the above changed
}

func (r *Reader) view(ctx context.Context, a process.Attempt) (view, error) {
	var came <-chan struct{}
	if k := r.o.Keeper; k != nil {
		came = k.came.wait()
		if t := k.live(a.ID); t != nil {
			v := view{changed: t.changed.wait()}
			v.m, v.streams, v.closed = t.snapshot()
			return v, nil
		}
	}
	if !a.State.Terminal() {
		return view{changed: came}, nil
	}
	m, err := r.o.Archive.Manifest(ctx, a.ID)
	if errors.Is(err, ErrMissing) {
		return view{changed: came}, nil
	}
	if err != nil {
		return view{}, err
	}
	return view{m: m, closed: true}, nil
}

// check refuses a pod or container that is not there, once that can be known.
func (v *view) check(o FollowOptions) error {
	if o.Pod != "" && v.closed && !slices.ContainsFunc(v.m.Pods, func(p PodLog) bool { return p.Name == o.Pod }) {
		return fmt.Errorf("%w: %s", ErrNoPod, o.Pod)
	}
	if len(v.m.Pods) == 0 {
		return nil
	}
	var known []string
	instance := o.Restart == nil || !v.closed
	for _, p := range v.m.Pods {
		for _, c := range p.Containers {
			if !slices.Contains(known, c.Name) {
				known = append(known, c.Name)
			}
			instance = instance || c.Restart == *o.Restart && (o.Container == "" || c.Name == o.Container)
		}
	}
	if o.Container != "" && !slices.Contains(known, o.Container) {
		return &UnknownContainerError{Container: o.Container, Known: known}
	}
	if !instance {
		return fmt.Errorf("%w: restart %d", ErrNoInstance, *o.Restart)
	}
	return nil
}

// part is one container instance in the order in which a reader gets them.
type part struct {
	number int // of the pod, from 1
	pod    string
	c      ContainerLog
}

func (p *part) key() streamKey {
	return streamKey{pod: p.pod, container: p.c.Name, restart: p.c.Restart}
}

// parts lists what the options choose, as far as it has started.
func (v *view) parts(o FollowOptions) []part {
	var list []part
	for i, p := range v.m.Pods {
		if o.Pod != "" && p.Name != o.Pod {
			continue
		}
		name := o.Container
		if name == "" {
			name = p.chosen()
		}
		for _, c := range p.Containers {
			if (c.Name == name || o.AllContainers) && c.Started && (o.Restart == nil || c.Restart == *o.Restart) {
				list = append(list, part{number: i + 1, pod: p.Name, c: c})
			}
		}
	}
	return list
}

// chosen is the container that stands for a pod: main, unless an init container's failure kept it from starting.
func (p PodLog) chosen() string {
	failed := MainContainer
	for _, c := range p.Containers {
		if c.Name == MainContainer && c.Started {
			return MainContainer
		}
		if c.Role == RoleInit && c.Ended && c.ExitCode != nil && *c.ExitCode != 0 {
			failed = c.Name
		}
	}
	return failed
}

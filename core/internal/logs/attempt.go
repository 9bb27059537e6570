package logs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// attempt is what the Keeper holds of one attempt from its first pod until its logs are stored.
type attempt struct {
	k    *Keeper
	id   string
	lane *lane
	dir  string
	// identity is the cluster that the attempt was placed on: the entry may lead to another one meanwhile.
	identity string
	used     atomic.Int64 // bytes spooled, against the quota

	ctx  context.Context // ends when the attempt is let go of
	stop context.CancelFunc
	wg   sync.WaitGroup // the streams' runs

	changed signal // pods, containers or the end of a stream

	mu       sync.Mutex
	loaded   bool
	m        Manifest // without what the streams know better
	streams  map[streamKey]*stream
	draining bool // Finish was called: no further pods will come
	leaving  bool // it is being cancelled: its pods are about to go
	// unseen are the pods that an earlier Keeper wrote down and that nobody has seen since.
	unseen map[string]bool
	// recalled closes once it is known what servers before had read; past is that.
	recalled   chan struct{}
	past       map[string]int64
	sharing    bool // it is being written down for those that come
	shareAgain bool
	cut        bool // its cluster was removed: nothing more is read
	released   bool
	saving     *time.Timer // runs while something is to be written down; nil: nothing is
}

type streamKey struct {
	pod       string
	container string
	restart   int32
}

// newAttempt is called with the Keeper's lock held.
func newAttempt(k *Keeper, a process.Attempt) *attempt {
	t := &attempt{
		k: k, id: a.ID, lane: k.lane(a.ClusterID), dir: spoolDir(k.o.SpoolDir, a.ID), identity: a.ClusterIdentity,
		m: Manifest{
			AttemptID: a.ID, VersionID: a.VersionID, ProjectID: a.ProjectID, ClusterID: a.ClusterID, Namespace: a.Namespace,
		},
		streams: map[streamKey]*stream{}, recalled: make(chan struct{}),
	}
	t.ctx, t.stop = context.WithCancel(k.ctx)
	// No other server can have followed a Job that came to be in this term; their clocks may differ a little.
	if !k.o.Shared || a.JobAt != nil && a.JobAt.After(k.born.Add(clocks)) {
		close(t.recalled)
	}
	return t
}

// clocks is by how much the clocks of two servers may differ.
const clocks = time.Minute

// stateFile keeps what is known of an attempt's pods: when the next Keeper takes over, the cluster may have forgotten them.
const stateFile = "attempt.json"

// load takes up what an earlier Keeper left.
func (t *attempt) load() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loaded || t.released {
		return nil
	}
	path := filepath.Join(t.dir, stateFile)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the log spool: %w", err)
	}
	if err == nil {
		var m Manifest
		if err := json.Unmarshal(data, &m); err != nil {
			t.k.log.Warn("the log spool does not say which pods there were; going by the cluster alone", "file", path, "error", err)
		}
		t.m.Pods = m.Pods
		t.unseen = make(map[string]bool, len(m.Pods))
		for _, p := range m.Pods {
			t.unseen[p.Name] = true
		}
	}
	t.loaded = true
	if t.hasRecalled() {
		t.startStreams()
	} else {
		t.wg.Go(t.recall)
	}
	t.k.came.wake()
	return nil
}

// saveAfter is how long news of pods may wait until they are written down: until then, the cluster knows them too. Most
// short attempts are stored before.
const saveAfter = 2 * time.Second

// saveSoon has the pods written down. The caller holds the lock.
func (t *attempt) saveSoon() {
	if t.saving != nil || t.released || len(t.streams) == 0 {
		return
	}
	t.saving = time.AfterFunc(saveAfter, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.released {
			t.saving = nil
			t.save()
			t.share()
		}
	})
}

// save writes the pods down. A failure costs nothing as long as this Keeper or the cluster remembers them. The caller
// holds the lock.
func (t *attempt) save() {
	m, _ := t.describe()
	data, err := json.Marshal(m)
	if err == nil {
		err = os.MkdirAll(t.dir, 0o700)
	}
	path := filepath.Join(t.dir, stateFile)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.k.log.Warn("the pods of an attempt could not be written to the log spool", "attempt", t.id, "error", err)
	}
}

func (t *attempt) ensure(pods []*corev1.Pod, leaving bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released {
		return
	}
	changed := leaving && !t.leaving
	t.leaving = t.leaving || leaving
	for _, pod := range pods {
		seen, ok := podLog(pod)
		if !ok {
			t.k.log.Warn("ignoring a pod whose name, or a container's, is not valid", "attempt", t.id, "pod", pod.Name)
			continue
		}
		delete(t.unseen, seen.Name)
		if known := t.pod(seen.Name); known == nil {
			t.m.Pods = append(t.m.Pods, seen)
			sortPods(t.m.Pods)
			changed = true
		} else if known.merge(seen) {
			changed = true
		}
	}
	if !changed {
		return
	}
	t.startStreams()
	if leaving {
		t.save() // when the pods are gone, nothing but this file remembers them
		t.share()
	} else {
		t.saveSoon()
	}
	t.changed.wake()
}

func (t *attempt) pod(name string) *PodLog {
	for i := range t.m.Pods {
		if t.m.Pods[i].Name == name {
			return &t.m.Pods[i]
		}
	}
	return nil
}

// startStreams follows what has started and tells the streams what is known. The caller holds the lock and has seen that
// the attempt is not released.
func (t *attempt) startStreams() {
	if !t.hasRecalled() {
		return
	}
	for _, p := range t.m.Pods {
		for _, c := range p.Containers {
			if !c.Started {
				continue
			}
			key := streamKey{pod: p.Name, container: c.Name, restart: c.Restart}
			s := t.streams[key]
			if s == nil {
				s = newStream(t, key, c.Complete && c.Bytes == 0)
				t.streams[key] = s
				t.wg.Go(s.run)
			}
			by, superseded := p.superseded(c.Name, c.Restart)
			s.tell(news{ended: c.Ended || superseded, previous: superseded, dropped: superseded && by > c.Restart+1, hurried: t.draining, leaving: t.leaving, cut: t.cut})
		}
	}
}

// cutOff lets every stream end where it is.
func (t *attempt) cutOff() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cut = true
	if !t.released {
		t.startStreams()
	}
}

// drain waits until every stream has come to its end. Each has a deadline from now on.
func (t *attempt) drain(ctx context.Context) error {
	select {
	case <-t.recalled:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.ctx.Done():
		return ErrClosed
	}
	t.mu.Lock()
	t.draining = true
	t.suspectUnseen()
	if !t.released {
		t.startStreams()
	}
	t.mu.Unlock()
	t.changed.wake()

	grace := time.AfterFunc(t.k.o.FinishGrace, func() {
		for _, s := range t.unfinished() {
			s.tell(news{forced: true})
		}
	})
	defer grace.Stop()
	for {
		streams := t.unfinished()
		if len(streams) == 0 {
			return nil
		}
		for _, s := range streams {
			select {
			case <-s.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-t.ctx.Done():
				return ErrClosed
			}
		}
	}
}

// suspectUnseen takes containers as started that may have been: nobody looked between their pod's last sight and its end. A
// read then finds what there is, or marks that something may be missing. The caller holds the lock.
func (t *attempt) suspectUnseen() {
	for name := range t.unseen {
		p := t.pod(name)
		for i := range p.Containers {
			if c := &p.Containers[i]; !c.Started && !c.Ended {
				c.Started = true
			}
		}
	}
}

func (t *attempt) unfinished() []*stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*stream
	for _, s := range t.streams {
		if !s.finished() {
			list = append(list, s)
		}
	}
	return list
}

// snapshot is the manifest as it stands, and the streams by their keys.
func (t *attempt) snapshot() (Manifest, map[streamKey]*stream, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, streams := t.describe()
	if !t.hasRecalled() {
		m.Pods = nil // nothing can be read yet
	}
	return m, streams, t.draining
}

// describe is the manifest as it stands, and the streams by their keys. The caller holds the lock.
func (t *attempt) describe() (Manifest, map[streamKey]*stream) {
	m := t.m
	m.Pods = make([]PodLog, len(t.m.Pods))
	streams := make(map[streamKey]*stream, len(t.streams))
	for i, p := range t.m.Pods {
		containers := make([]ContainerLog, len(p.Containers))
		copy(containers, p.Containers)
		for j := range containers {
			c := &containers[j]
			key := streamKey{pod: p.Name, container: c.Name, restart: c.Restart}
			if s := t.streams[key]; s != nil {
				streams[key] = s
				s.describe(c)
			}
		}
		p.Containers = containers
		m.Pods[i] = p
	}
	return m, streams
}

// store writes everything to the archive, the manifest last. All streams are done.
func (t *attempt) store(ctx context.Context) error {
	m, streams, _ := t.snapshot()
	return t.k.o.Archive.store(ctx, m, func(pod string, c ContainerLog) io.Reader {
		return io.NewSectionReader(streams[streamKey{pod: pod, container: c.Name, restart: c.Restart}], 0, c.Bytes)
	})
}

// release ends the streams and lets go of the files. Readers notice and turn to the archive. With save, what has not been
// written down is.
func (t *attempt) release(save bool) {
	t.mu.Lock()
	if t.released {
		t.mu.Unlock()
		return
	}
	t.released = true
	t.mu.Unlock()
	t.stop()
	t.wg.Wait()
	t.mu.Lock()
	if t.saving != nil && t.saving.Stop() && save {
		t.save()
	}
	t.mu.Unlock()
	for _, s := range t.streams { // nothing adds to it any more
		s.release()
	}
	t.changed.wake()
}

func removeSpool(root, attemptID string) error {
	if err := os.RemoveAll(spoolDir(root, attemptID)); err != nil {
		return fmt.Errorf("remove the log spool: %w", err)
	}
	return nil
}

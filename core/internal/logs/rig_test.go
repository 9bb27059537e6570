package logs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rows is the database of the tests.
type rows struct {
	mu  sync.Mutex
	m   map[string]process.Attempt
	hub event.Hub
}

func (r *rows) Attempt(_ context.Context, id string) (process.Attempt, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.m[id]
	if !ok {
		return process.Attempt{}, process.ErrNotFound
	}
	return a, nil
}

func (r *rows) Hub() *event.Hub { return &r.hub }

func (r *rows) set(id string, change func(*process.Attempt)) process.Attempt {
	r.mu.Lock()
	a := r.m[id]
	change(&a)
	r.m[id] = a
	r.mu.Unlock()
	r.hub.Wake()
	return a
}

// rig is one Keeper with its archive, spool, cluster and readers.
type rig struct {
	t       testing.TB
	k       *kubelet
	rows    *rows
	archive *Archive
	o       KeeperOptions
	keeper  *Keeper
	reader  *Reader
}

const id = "01890000-0000-7000-8000-000000000001"

func newRig(t testing.TB, change func(*KeeperOptions)) *rig {
	t.Helper()
	dir := t.TempDir()
	archive, err := OpenArchive(t.Context(), "file://"+filepath.ToSlash(filepath.Join(dir, "logs")))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, k: newKubelet(t), archive: archive, rows: &rows{m: map[string]process.Attempt{
		id: {ID: id, VersionID: "v", ProjectID: "p", ClusterID: "c", Namespace: "jobs", State: process.Queued, JobName: "j", JobUID: "u"},
	}}}
	r.o = KeeperOptions{
		Source: r.k.src, Archive: archive, SpoolDir: filepath.Join(dir, "spool"),
		Logger:   hclog.New(&hclog.LoggerOptions{Output: t.Output(), Level: hclog.Warn}),
		RetryMin: 5 * time.Millisecond, RetryMax: 50 * time.Millisecond, FinishGrace: 200 * time.Millisecond,
	}
	if change != nil {
		change(&r.o)
	}
	t.Cleanup(func() {
		_ = r.keeper.Close()
		_ = archive.Close()
	})
	r.restart()
	return r
}

// restart replaces the Keeper as a new process would: nothing is flushed or told.
func (r *rig) restart() {
	r.t.Helper()
	if r.keeper != nil {
		_ = r.keeper.Close()
	}
	keeper, err := NewKeeper(r.o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.keeper = keeper
	r.reader = NewReader(ReaderOptions{Archive: r.archive, Attempts: r.rows, Keeper: keeper, Settle: time.Millisecond})
}

func (r *rig) attempt() process.Attempt {
	a, err := r.rows.Attempt(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return a
}

func (r *rig) ensure(pods ...*corev1.Pod) { r.keeper.Ensure(r.attempt(), pods) }

// finish ends the attempt and stores its logs.
func (r *rig) finish(state process.State, pods ...*corev1.Pod) Manifest {
	r.t.Helper()
	a := r.rows.set(id, func(a *process.Attempt) { a.State = state })
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	if err := r.keeper.Finish(ctx, a, pods); err != nil {
		r.t.Fatal(err)
	}
	r.rows.set(id, func(a *process.Attempt) { a.LogsStored = true })
	m, err := r.archive.Manifest(ctx, id)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := os.Stat(spoolDir(r.o.SpoolDir, id)); !errors.Is(err, os.ErrNotExist) {
		r.t.Error("the spool is still there after Finish:", err)
	}
	return m
}

// stored is the archived log of one container.
func (r *rig) stored(pod, container string) string {
	r.t.Helper()
	body, err := r.archive.Open(r.t.Context(), id, pod, container, 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(data)
}

// reading is a reader at work.
type reading struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	text   strings.Builder
	chunks []Chunk // without data
	last   Cursor
	err    error
	moved  signal
}

// read follows the log in the background.
func (r *rig) read(o FollowOptions) *reading {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	seq, err := r.reader.Follow(ctx, id, o)
	if err != nil {
		cancel()
		r.t.Fatal(err)
	}
	g := &reading{t: r.t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		for c, err := range seq {
			g.mu.Lock()
			if err != nil {
				g.err = err
			} else {
				g.last = c.Cursor
				g.text.Write(c.Data)
				if c.Kind != ChunkData {
					c.Data = nil
					g.chunks = append(g.chunks, c)
				}
			}
			g.moved.wake()
			g.mu.Unlock()
		}
	}()
	r.t.Cleanup(func() { cancel(); <-g.done })
	return g
}

// await waits until cond, called under the lock, is true.
func (g *reading) await(what string, cond func() bool) {
	g.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		g.mu.Lock()
		moved, ok, n, err := g.moved.wait(), cond(), g.text.Len(), g.err
		g.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-moved:
		case <-deadline:
			g.t.Fatalf("waited too long for: %s (%d bytes so far, error %v)", what, n, err)
		}
	}
}

func (g *reading) awaitBytes(n int) {
	g.t.Helper()
	g.await("bytes", func() bool { return g.text.Len() >= n })
}

// wait returns the whole text once the sequence is over.
func (g *reading) wait() string {
	g.t.Helper()
	select {
	case <-g.done:
	case <-time.After(30 * time.Second):
		g.t.Fatal("the log did not end")
	}
	if g.err != nil {
		g.t.Fatal(g.err)
	}
	return g.text.String()
}

func (g *reading) end() *End {
	if n := len(g.chunks); n > 0 {
		return g.chunks[n-1].End
	}
	return nil
}

func (g *reading) notes() (list []string) {
	for _, c := range g.chunks {
		if c.Kind == ChunkNote {
			list = append(list, c.Note)
		}
	}
	return list
}

// pod makes a pod whose containers are what status gives.
func pod(name string, containers ...corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(t0)}}
	for _, c := range containers {
		if init, ok := strings.CutPrefix(c.Name, "init:"); ok {
			c.Name = init
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: c.Name})
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, c)
			continue
		}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, c)
	}
	return p
}

func running(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "x", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func exited(name string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "x", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed"}}}
}

func waiting(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
}

// Package logs keeps what containers print: it follows every container from its start, spools the bytes to local files
// while the attempt lives, stores them in an archive at its end, and serves any number of readers from one place before,
// during and after the run.
//
// Three parts:
//
//   - Keeper (the leader's): one upstream follow per container, resumed after cut streams and restarts without gap or
//     double. Dispatch calls Ensure whenever an attempt's pods change, and Finish once the attempt has ended.
//   - Archive: one object per attempt, pod and container with exactly the bytes that the container printed, if any, and one
//     manifest per attempt. The manifest is written last: where it is, the log is whole.
//   - Reader: the log of one attempt as a sequence of chunks, live from the spool or finished from the archive, resumable
//     by Cursor. WriteSSE and WriteText put such a sequence on the wire.
//
// What a handler does:
//
//	seq, err := reader.Follow(ctx, attemptID, logs.FollowOptions{Follow: true, After: cursor, Heartbeat: 10 * time.Second})
//	if err != nil { … a *UnknownContainerError, ErrCursor, process.ErrNotFound: nothing has been written yet … }
//	err = logs.WriteSSE(w, flush, seq)
//
// The archive is byte-identical to the container's output unless a Gap says otherwise. Every gap stands in the manifest
// and, as a line that begins with "[nagelfluh]", in the text itself.
package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// MainContainer is the name of the container that runs the user's work.
const MainContainer = "main"

// Sentinel errors of the package; compare with errors.Is.
var (
	// ErrCursor: the cursor is malformed, or belongs to another attempt or container than the one asked for.
	ErrCursor = errors.New("log position is not of this log")
	// ErrNoPod: the attempt has no pod of the name asked for.
	ErrNoPod = errors.New("no such pod in this attempt")
	// ErrNoInstance: the container was not restarted so often.
	ErrNoInstance = errors.New("no such instance of the container in this attempt")
	// ErrMissing: the attempt's logs were stored, but the archive no longer holds them.
	ErrMissing = errors.New("the archive no longer holds this log")
	// ErrClosed: the Keeper is closed.
	ErrClosed = errors.New("log keeper is closed")
)

// UnknownContainerError says that the attempt's pods have no container of the name asked for.
type UnknownContainerError struct {
	Container string
	Known     []string // the names there are, init containers first
}

func (e *UnknownContainerError) Error() string {
	return fmt.Sprintf("no container %q in this attempt; there are: %s", e.Container, strings.Join(e.Known, ", "))
}

// Source opens the log of one container. A non-2xx answer comes back as a Kubernetes API status error, so that a pod that
// is gone is told apart from a cluster that cannot be reached. The reader fails soon after ctx is done. An open with
// Follow may block until the container prints its first byte: kubelets answer only then.
type Source interface {
	Logs(ctx context.Context, clusterID, namespace, pod, container string, o SourceOptions) (io.ReadCloser, error)
}

// SourceOptions are the parameters of one read; lines are always asked for with their timestamps.
type SourceOptions struct {
	// Identity is what the cluster asked for may be known by, as the attempt has it: UIDs separated by blanks. One with another identity gives no answer that it
	// has no such pod, but an error. Empty: any cluster will do.
	Identity string
	Follow   bool
	Previous bool      // the container's instance before the present one
	Since    time.Time // whole seconds; zero: from the start
}

// Attempts tells where an attempt stands. *store.DB fulfils it.
type Attempts interface {
	// Attempt returns the row; an unknown id gives an error that wraps process.ErrNotFound.
	Attempt(ctx context.Context, id string) (process.Attempt, error)
	// Hub wakes after each change of any attempt.
	Hub() *event.Hub
}

// Manifest says what the log of an attempt consists of.
type Manifest struct {
	AttemptID string `json:"attempt"`
	VersionID string `json:"version"`
	ProjectID string `json:"project"`
	ClusterID string `json:"cluster"`
	Namespace string `json:"namespace"`
	// Copy is the folder of the archive that holds the logs; empty while the attempt's log is still being written.
	Copy string `json:"copy,omitempty"`
	// StoredAt is when the archive took the log; zero while the attempt's log is still being written.
	StoredAt time.Time `json:"stored_at,omitzero"`
	// Pods in the order of their creation: the first, then those of retries.
	Pods []PodLog `json:"pods"`
}

// Complete says whether every container that started is there without a gap.
func (m Manifest) Complete() bool {
	for _, p := range m.Pods {
		for _, c := range p.Containers {
			if c.Started && (!c.Complete || len(c.Gaps) > 0) {
				return false
			}
		}
	}
	return true
}

// find returns the container instance's entry; nil: there is none.
func (m Manifest) find(pod, container string, restart int32) *ContainerLog {
	for _, p := range m.Pods {
		for i := range p.Containers {
			if c := &p.Containers[i]; p.Name == pod && c.Name == container && c.Restart == restart {
				return c
			}
		}
	}
	return nil
}

// silent says whether the manifest knows the container instance and that it printed nothing.
func (m Manifest) silent(pod, container string, restart int32) bool {
	c := m.find(pod, container, restart)
	return c != nil && c.Started && c.Bytes == 0
}

// PodLog is one pod's part of a manifest.
type PodLog struct {
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	CreatedAt time.Time `json:"created_at"`
	// Containers in the order in which they start: init containers, then the others as the pod lists them. A container
	// that was restarted has one entry per instance.
	Containers []ContainerLog `json:"containers"`
}

// Role says what a container is for.
type Role string

// Roles of containers.
const (
	RoleInit    Role = "init"
	RoleMain    Role = "main"
	RoleSidecar Role = "sidecar"
)

// ContainerLog is the log of one instance of a container.
type ContainerLog struct {
	Name    string `json:"name"`
	Role    Role   `json:"role"`
	Restart int32  `json:"restart,omitempty"` // 0: the first instance
	Started bool   `json:"started"`
	Ended   bool   `json:"ended"` // the container was seen terminated
	// ExitCode and Reason are as the cluster told them; nil and empty: not known.
	ExitCode *int32 `json:"exit_code,omitempty"`
	Reason   string `json:"reason,omitempty"`
	// Bytes is the size of the log, markers included.
	Bytes int64 `json:"bytes"`
	// Complete: the log was read to an end that a second read confirmed.
	Complete bool  `json:"complete"`
	Gaps     []Gap `json:"gaps,omitempty"`
	// Times says where its seconds begin; empty: not known.
	Times Times `json:"times,omitzero"`
}

// Gap is a place at which output is, or may be, missing. The text holds a marker line at Offset.
type Gap struct {
	Offset int64     `json:"offset"`
	At     time.Time `json:"at"`   // when it was noticed
	Code   string    `json:"code"` // one of the Gap… constants
	Reason string    `json:"reason"`
	// Origin names what follows a loss of lines, by the stamp of its first line; 0: nothing was lost that others may have.
	Origin int64 `json:"origin,omitempty"`
}

// Codes of gaps.
const (
	GapRotated = "rotated" // the cluster had dropped the continuation of what was read before
	GapPodGone = "pod-gone"
	GapRefused = "refused" // the cluster refused to give the log
	GapTimeout = "timeout" // the cluster did not give the log in time
	GapRemoved = "removed" // the cluster was removed
	GapQuota   = "quota"   // the attempt printed more than its quota
)

// Cursor is a position in the log of an attempt: all bytes before Offset of this container instance have been seen, and
// all of the instances before it. Its text form is the id of the SSE events.
type Cursor struct {
	AttemptID string
	Pod       string
	Container string
	Restart   int32
	Offset    int64
	// Origin names the stretch that Offset is in, as Gap has it; 0: nothing is missing before.
	Origin int64
	// End: the end event has been seen; there is nothing to resume. A handler answers such a reconnect with 204.
	End bool
}

// String gives the text form, attempt/pod/container.restart@offset and, behind a loss, ~origin; an end has the suffix
// "/end". The zero cursor is the empty string.
func (c Cursor) String() string {
	if c == (Cursor{}) {
		return ""
	}
	s := fmt.Sprintf("%s/%s/%s.%d@%d", c.AttemptID, c.Pod, c.Container, c.Restart, c.Offset)
	if c.Origin != 0 {
		s += "~" + strconv.FormatInt(c.Origin, 36)
	}
	if c.End {
		s += "/end"
	}
	return s
}

// ParseCursor reads the text form; the empty string gives the zero cursor. Errors wrap ErrCursor.
func ParseCursor(s string) (Cursor, error) {
	if s == "" {
		return Cursor{}, nil
	}
	var c Cursor
	bad := fmt.Errorf("%w: want attempt/pod/container.restart@offset", ErrCursor)
	rest, end := strings.CutSuffix(s, "/end")
	c.End = end
	parts := strings.Split(rest, "/")
	if len(parts) != 3 {
		return Cursor{}, bad
	}
	c.AttemptID, c.Pod = parts[0], parts[1]
	name, offset, ok := strings.Cut(parts[2], "@")
	if !ok {
		return Cursor{}, bad
	}
	offset, stretch, behind := strings.Cut(offset, "~")
	name, restart, ok := strings.Cut(name, ".")
	if !ok {
		return Cursor{}, bad
	}
	n, err := strconv.ParseInt(restart, 10, 32)
	if err != nil || n < 0 {
		return Cursor{}, bad
	}
	c.Container, c.Restart = name, int32(n)
	if c.Offset, err = strconv.ParseInt(offset, 10, 64); err != nil || c.Offset < 0 {
		return Cursor{}, bad
	}
	if behind {
		if c.Origin, err = strconv.ParseInt(stretch, 36, 64); err != nil || c.Origin <= 0 {
			return Cursor{}, bad
		}
	}
	// An attempt that ended before it had a pod ends with a cursor that names no stream.
	if c.AttemptID == "" || !c.End && (c.Pod == "" || c.Container == "") {
		return Cursor{}, bad
	}
	return c, nil
}

// FollowOptions choose what a reader gets.
type FollowOptions struct {
	// Container: empty means main, or per pod the init container whose failure kept main from starting.
	Container string
	// AllContainers gives every container of each pod in the order in which they start. One after the other: it is for what
	// is there, and goes not with Follow.
	AllContainers bool
	// Pod limits the log to one pod; empty: all pods of the attempt in order, each announced by a ChunkPod.
	Pod string
	// Restart limits it to one instance of each container, from 0; nil: all of them in order.
	Restart *int32
	// Tail begins with the last so many lines of the newest pod, with AllContainers of each container; nil: from the first
	// byte. Ignored with After.
	Tail *int64
	// Since leaves out what the node recorded before that second; zero: nothing. Logs of many hours are looked up less
	// exactly and may begin earlier. Ignored with After.
	Since time.Time
	// After resumes behind a cursor that an earlier chunk carried; zero: from the start.
	After Cursor
	// Follow waits for what is still to come, until the attempt has ended. Without it the log ends at what is there.
	Follow bool
	// Heartbeat is the longest silence: a ChunkHeartbeat comes when nothing else did for so long. Zero: none.
	Heartbeat time.Duration
}

// ChunkKind says what a chunk is.
type ChunkKind string

// Kinds of chunks. They are the event names on SSE, except ChunkHeartbeat, which becomes a comment.
const (
	ChunkData      ChunkKind = "log"       // Data is set
	ChunkPod       ChunkKind = "pod"       // the log of Cursor's container instance begins (or goes on) here
	ChunkNote      ChunkKind = "note"      // State, Code and Note say what is being waited for, or what is wrong
	ChunkEnd       ChunkKind = "end"       // nothing follows; End is set
	ChunkAttempt   ChunkKind = "attempt"   // of All: the log of Attempt begins (or goes on) here; it has no Cursor
	ChunkHeartbeat ChunkKind = "heartbeat" // still here
)

// Chunk is one piece of a log.
type Chunk struct {
	Kind ChunkKind
	// Cursor is the position behind this chunk.
	Cursor Cursor
	// Data holds the container's bytes; lines and characters may be split between chunks. It is valid only until the next
	// chunk is asked for.
	Data []byte
	// PodNumber counts the pods of the attempt from 1; set on ChunkPod.
	PodNumber int
	Attempt   *process.Attempt
	State     process.State
	Code      string // reason code, as on the attempt
	Note      string // a sentence for people
	End       *End
}

// End says how a log ended.
type End struct {
	// State is the attempt's; not terminal when the log was read without Follow.
	State    process.State `json:"state"`
	Code     string        `json:"code,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	ExitCode *int32        `json:"exit_code,omitempty"`
	// Complete: nothing of what was asked for is missing. False as long as the attempt lives.
	Complete bool `json:"complete"`
}

package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// leaders is the election of the tests.
type leaders struct {
	mu      sync.Mutex
	view    lease.View
	changed chan struct{}
}

func (l *leaders) View() (lease.View, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view, l.changed
}

func (l *leaders) is(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
	}
	l.changed, l.view = make(chan struct{}), lease.View{Holder: address, Address: address}
}

type attempts struct{ row process.Attempt }

func (a attempts) Attempt(context.Context, string) (process.Attempt, error) { return a.row, nil }

const text = "0123456789abcdefghij"

var at = logs.Cursor{AttemptID: "a", Pod: "pod", Container: "main"}

// rig is a server that does not lead, and others that do.
type rig struct {
	*Logs
	t       *testing.T
	leaders *leaders
	mu      sync.Mutex
	asked   []*http.Request
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, leaders: &leaders{}}
	transport := NewTransport()
	t.Cleanup(transport.CloseIdleConnections)
	r.Logs = NewLogs(LogsOptions{
		Leaders: r.leaders, Local: func() Follower { return nil }, Transport: transport, Self: "this",
		Attempts: attempts{row: process.Attempt{ID: "a", VersionID: "v", Number: 2, State: process.Running, JobUID: "u"}},
	})
	return r
}

// leader starts a server that has text, of which it gives the bytes up to a limit before then is asked how it ends.
func (r *rig) leader(limit int64, then func(w http.ResponseWriter, q *http.Request)) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.asked = append(r.asked, q)
		r.mu.Unlock()
		after, err := logs.ParseCursor(q.Header.Get("Last-Event-ID"))
		if err != nil {
			r.t.Error(err)
		}
		flush := func() error { return http.NewResponseController(w).Flush() }
		_ = logs.WriteSSE(w, flush, func(yield func(logs.Chunk, error) bool) {
			c := at
			c.Offset = after.Offset
			if !yield(logs.Chunk{Kind: logs.ChunkPod, Cursor: c, PodNumber: 1}, nil) {
				return
			}
			for c.Offset < limit {
				c.Offset++
				if !yield(logs.Chunk{Kind: logs.ChunkData, Cursor: c, Data: []byte(text[c.Offset-1 : c.Offset])}, nil) {
					return
				}
			}
			if limit == int64(len(text)) {
				c.End = true
				yield(logs.Chunk{Kind: logs.ChunkEnd, Cursor: c, End: &logs.End{State: process.Succeeded, Complete: true}}, nil)
			}
		})
		if then != nil {
			then(w, q)
		}
	}))
	r.t.Cleanup(srv.Close)
	return srv.URL
}

// read gives what a reader sees, each announcement of a part as "|".
func read(t *testing.T, seq iter.Seq2[logs.Chunk, error], seen func(string)) (string, error) {
	t.Helper()
	var out strings.Builder
	for c, err := range seq {
		if err != nil {
			return out.String(), err
		}
		switch c.Kind {
		case logs.ChunkPod:
			out.WriteByte('|')
		case logs.ChunkData:
			out.Write(c.Data)
		case logs.ChunkEnd:
			out.WriteByte('.')
		}
		if seen != nil {
			seen(out.String())
		}
	}
	return out.String(), nil
}

// A leader that dies, one that hangs while another takes over, and one that has just stopped leading: the reader sees each
// byte once, and the beginning of the part once.
func TestB46_LogGoesOnWithTheNextLeader(t *testing.T) {
	hang := func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }
	for name, end := range map[string]func(http.ResponseWriter, *http.Request){
		"dies": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "hangs": hang, "ends without an end": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.leaders.is(r.leader(7, end))
			next := r.leader(int64(len(text)), nil)
			seq, err := r.Follow(t.Context(), "a", logs.FollowOptions{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			got, err := read(t, seq, func(sofar string) {
				if sofar == "|"+text[:7] {
					r.leaders.is(next)
				}
			})
			if err != nil || got != "|"+text+"." {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// While nobody leads, the reader hears that it is not forgotten.
func TestHeartbeatsBetweenLeaders(t *testing.T) {
	r := newRig(t)
	r.leaders.is(r.leader(3, nil))
	next := r.leader(int64(len(text)), nil)
	seq, err := r.Follow(t.Context(), "a", logs.FollowOptions{Follow: true, Heartbeat: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	beats := 0
	var got strings.Builder
	for c, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		got.Write(c.Data)
		switch {
		case got.String() == text[:3] && c.Kind == logs.ChunkData:
			r.leaders.is("")
		case c.Kind == logs.ChunkHeartbeat && got.Len() == 3:
			if beats++; beats == 2 {
				r.leaders.is(next)
			}
		}
	}
	if beats < 2 || got.String() != text {
		t.Errorf("%d heartbeats, %q", beats, got.String())
	}
}

// A leader's refusal is given as it is, and is no reason to look for another leader.
func TestRefusalOfTheLeader(t *testing.T) {
	r := newRig(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"code":"bad-parameter","detail":"no such pod"}`)
	}))
	t.Cleanup(srv.Close)
	r.leaders.is(srv.URL)
	if _, err := r.Follow(t.Context(), "a", logs.FollowOptions{Pod: "x"}); err == nil || !strings.Contains(err.Error(), "no such pod") {
		t.Error(err)
	}
}

// What was passed on already is not passed on again, or two servers that each hold the other for the leader never end.
func TestForwardedIsNotForwardedAgain(t *testing.T) {
	r := newRig(t)
	r.leaders.is(r.leader(20, nil))
	ctx := WithCaller(t.Context(), http.Header{HeaderForwarded: {"other"}})
	if _, err := r.Follow(ctx, "a", logs.FollowOptions{}); !errors.Is(err, ErrNoLeader) {
		t.Error(err)
	}
	if len(r.asked) != 0 {
		t.Error("the leader was asked")
	}
}

// Whatever a reader may ask for reaches the leader: each option changes the request, and the caller's credentials go along.
func TestEveryOptionReachesTheLeader(t *testing.T) {
	restart, tail := int32(1), int64(5)
	values := map[string]any{
		"Container": "sidecar", "AllContainers": true, "Pod": "pod", "Restart": &restart, "Tail": &tail,
		"Since": time.Unix(1_800_000_000, 0), "After": at, "Follow": true,
	}
	plain := requestOf(t, logs.FollowOptions{})
	all := reflect.TypeFor[logs.FollowOptions]()
	for i := range all.NumField() {
		name := all.Field(i).Name
		if name == "Heartbeat" {
			continue // each server keeps its own readers awake
		}
		value, ok := values[name]
		if !ok {
			t.Errorf("no value for option %s: does it reach the leader?", name)
			continue
		}
		var o logs.FollowOptions
		reflect.ValueOf(&o).Elem().Field(i).Set(reflect.ValueOf(value))
		if requestOf(t, o) == plain {
			t.Errorf("option %s does not reach the leader", name)
		}
	}
	if !strings.Contains(plain, "Bearer key") || !strings.Contains(plain, "attempt=2") {
		t.Error(plain)
	}
}

func requestOf(t *testing.T, o logs.FollowOptions) string {
	t.Helper()
	r := newRig(t)
	r.leaders.is(r.leader(20, nil))
	ctx := WithCaller(t.Context(), http.Header{"Authorization": {"Bearer key"}})
	seq, err := r.Follow(ctx, "a", o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, seq, nil); err != nil {
		t.Fatal(err)
	}
	q := r.asked[0]
	return q.URL.String() + " " + q.Header.Get("Authorization") + " " + q.Header.Get("Last-Event-ID")
}

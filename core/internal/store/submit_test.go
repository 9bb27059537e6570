package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
)

func TestSubmit(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		in := make([]process.NewVersion, 40) // more than one group of rows
		for i := range in {
			in[i] = newVersion([]string{"a", "b"}[i%2])
			if i%3 == 0 {
				in[i].IdempotencyKey = fmt.Sprint("key ", 50-i)
			}
		}
		versions, existed, err := db.Submit(ctx, projectID, in)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range versions {
			if existed[i] || v.ID != in[i].ID || v.Number != int64(i/2+1) || v.ProcessName != in[i].ProcessName || v.State() != process.Placing {
				t.Errorf("item %d: %+v", i, v)
			}
			if d := cmp.Diff(v, must(db.Version(ctx, v.ID))(t)); d != "" {
				t.Errorf("item %d: -returned +read\n%s", i, d)
			}
		}
		if versions[0].ProcessID != in[0].ProcessID || versions[2].ProcessID != in[0].ProcessID || versions[1].ProcessID != in[1].ProcessID {
			t.Error("the processes do not have the ids of their first items")
		}
		es := must(db.Events(ctx, EventFilter{}))(t)
		for i, e := range es {
			v := versions[i]
			want := event.Event{
				Seq: int64(i + 1), At: v.CreatedAt, Kind: event.Submitted, ProjectID: projectID, ProcessID: v.ProcessID, VersionID: v.ID,
				AttemptID: v.Attempt.ID, Actor: "someone", State: "placing", Message: "Submitted",
				Data: []byte(`{"attempt":1}`),
			}
			if d := cmp.Diff(want, e); d != "" {
				t.Error(d)
			}
		}
		if len(es) != len(in) {
			t.Errorf("%d events", len(es))
		}

		t.Run("a later submission counts on", func(t *testing.T) {
			next := newVersion("a")
			next.ProcessType, next.ProcessLabels = "gpu", nil
			vs, _, err := db.Submit(ctx, projectID, []process.NewVersion{next})
			if err != nil || vs[0].Number != 21 || vs[0].ProcessID != in[0].ProcessID {
				t.Fatal(vs, err)
			}
			p := must(db.Process(ctx, vs[0].ProcessID))(t)
			if p.Type != "gpu" || p.Labels["team"] != "a" || p.CreatedBy != "someone" {
				t.Errorf("what is said last counts, what is not said stays: %+v", p)
			}
		})
		t.Run("an unknown project", func(t *testing.T) {
			if _, _, err := db.Submit(ctx, "none", []process.NewVersion{newVersion("a")}); !errors.Is(err, project.ErrNotFound) {
				t.Error(err)
			}
		})
		t.Run("nothing", func(t *testing.T) {
			if vs, _, err := db.Submit(ctx, projectID, nil); vs != nil || err != nil {
				t.Error(vs, err)
			}
		})
		t.Run("all or none", func(t *testing.T) {
			seq := must(db.LastSeq(ctx))(t)
			bad := newVersion("new")
			bad.ID = in[0].ID
			if _, _, err := db.Submit(ctx, projectID, []process.NewVersion{newVersion("new"), bad}); err == nil {
				t.Error("an id was used twice")
			}
			if ps, _, _ := db.Processes(ctx, projectID, "", 0); len(ps) != 2 || must(db.LastSeq(ctx))(t) != seq {
				t.Error("a failed submission left something:", ps)
			}
		})
	})
}

func TestIdempotency(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		item := func(key, hash string) process.NewVersion {
			v := newVersion("p")
			v.IdempotencyKey, v.BodyHash = key, hash
			return v
		}
		first, existed, err := db.Submit(ctx, projectID, []process.NewVersion{item("k", "1"), item("k", "1"), item("l", "1")})
		if err != nil || !slices.Equal(existed, []bool{false, true, false}) || first[0].ID != first[1].ID || first[2].Number != 2 {
			t.Fatal(first, existed, err)
		}
		seq := must(db.LastSeq(ctx))(t)
		again, existed, err := db.Submit(ctx, projectID, []process.NewVersion{item("l", "1"), item("k", "1")})
		if err != nil || !slices.Equal(existed, []bool{true, true}) || again[0].ID != first[2].ID || again[1].ID != first[0].ID {
			t.Error(again, existed, err)
		}
		if d := cmp.Diff(first[0], again[1]); d != "" {
			t.Error(d)
		}
		for name, in := range map[string][]process.NewVersion{
			"stored":           {item("new", "1"), item("k", "2")},
			"in the same bulk": {item("new", "1"), item("new", "2")},
		} {
			_, _, err := db.Submit(ctx, projectID, in)
			var reused *KeyReusedError
			if !errors.Is(err, process.ErrKeyReused) || !errors.As(err, &reused) || reused.Item() != 1 || reused.Key != in[1].IdempotencyKey || !strings.Contains(err.Error(), reused.Key) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if must(db.LastSeq(ctx))(t) != seq {
			t.Error("repeats or refusals wrote events")
		}
		other := must(db.CreateProject(ctx, project.Project{Name: "other"}))(t)
		if vs, existed, err := db.Submit(ctx, other.ID, []process.NewVersion{item("k", "2")}); err != nil || existed[0] || vs[0].Number != 1 {
			t.Error("another project's key:", vs, existed, err)
		}
		list, _, err := db.Versions(ctx, VersionFilter{ProjectID: projectID})
		if err != nil || len(list) != 2 {
			t.Error(list, err)
		}
	})
}

// Concurrent submissions of the same keys and processes, in different orders, give one version a key, and no gap.
func TestConcurrentSubmissions(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		const callers, keys = 12, 10
		ids := make([][]string, callers)
		var wg sync.WaitGroup
		for c := range callers {
			wg.Go(func() {
				in := make([]process.NewVersion, keys)
				for k := range in {
					in[k] = newVersion(fmt.Sprint("process ", k%4))
					in[k].IdempotencyKey = fmt.Sprint("key ", k)
				}
				turn := c % keys
				in = append(in[turn:], in[:turn]...)
				if c%2 == 1 {
					slices.Reverse(in)
				}
				vs, _, err := db.Submit(t.Context(), projectID, in)
				if err != nil {
					t.Error(err)
					return
				}
				slices.SortFunc(vs, func(a, b process.Version) int { return strings.Compare(a.IdempotencyKey, b.IdempotencyKey) })
				for _, v := range vs {
					ids[c] = append(ids[c], v.ID)
				}
			})
		}
		wg.Wait()
		for c := range ids {
			if !slices.Equal(ids[0], ids[c]) {
				t.Errorf("caller %d got other versions", c)
			}
		}
		list, _, err := db.Versions(t.Context(), VersionFilter{})
		if err != nil || len(list) != keys {
			t.Fatal(len(list), err)
		}
		numbers := map[string][]int64{}
		for _, v := range list {
			numbers[v.ProcessName] = append(numbers[v.ProcessName], v.Number)
		}
		for p, ns := range numbers {
			slices.Sort(ns)
			for i, n := range ns {
				if n != int64(i+1) {
					t.Errorf("%s has the numbers %v", p, ns)
				}
			}
		}
		if n := must(db.LastSeq(t.Context()))(t); n != keys {
			t.Errorf("%d events", n)
		}
	})
}

// B74: every id once over a full walk, whatever is inserted meanwhile.
func TestPages(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		want := map[string]bool{}
		for _, v := range submit(t, db, "p", 30) { // all of one time
			want[v.ID] = true
		}
		seen := map[string]int{}
		f := VersionFilter{ProjectID: projectID, State: process.Placing, Limit: 7}
		last := "\xff"
		for pages := 0; ; pages++ {
			vs, next, err := db.Versions(ctx, f)
			if err != nil || len(vs) > 7 || pages > 10 {
				t.Fatal(len(vs), pages, err)
			}
			for _, v := range vs {
				if v.ID >= last {
					t.Error("not in order")
				}
				last = v.ID
				seen[v.ID]++
			}
			if next == "" {
				break
			}
			f.Cursor = next
			submit(t, db, "other", 5)
		}
		for id := range want {
			if seen[id] != 1 {
				t.Errorf("%s came %d times", id, seen[id])
			}
		}
		for _, n := range []int{0, -1, 1 << 40} {
			if vs, _, err := db.Versions(ctx, VersionFilter{Limit: n}); err != nil || len(vs) != 30+4*5 {
				t.Error(n, len(vs), err)
			}
		}
		ps, next, err := db.Processes(ctx, "", "", 1)
		if err != nil || len(ps) != 1 || ps[0].Name != "other" || next != ps[0].ID {
			t.Error(ps, next, err)
		}
		ps, next, err = db.Processes(ctx, projectID, next, 1)
		if err != nil || len(ps) != 1 || ps[0].Name != "p" || next != "" {
			t.Error(ps, next, err)
		}
		for name, f := range map[string]VersionFilter{
			"project": {ProjectID: "none"}, "process": {ProcessID: "none"}, "state": {State: process.Running}, "cluster": {ClusterID: "none"},
		} {
			if vs, _, err := db.Versions(ctx, f); err != nil || len(vs) != 0 {
				t.Error(name, vs, err)
			}
		}
		if _, err := db.Version(ctx, "none"); !errors.Is(err, process.ErrNotFound) {
			t.Error(err)
		}
		if p := must(db.ProcessByName(ctx, projectID, "p"))(t); p.ID != ps[0].ID {
			t.Errorf("%+v", p)
		}
		if _, err := db.ProcessByName(ctx, "none", "p"); !errors.Is(err, process.ErrNotFound) {
			t.Error(err)
		}
		if _, err := db.Process(ctx, "none"); !errors.Is(err, process.ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestRequestCancel(t *testing.T) {
	each(t, func(t *testing.T, db *DB) {
		ctx := t.Context()
		for _, from := range process.States {
			v := submit(t, db, "p", 1)[0]
			a := to(t, db, v.Attempt, from)
			seq, at := must(db.LastSeq(ctx))(t), now()
			got := must(db.RequestCancel(ctx, v.ID, "me", at))(t)
			want := from
			switch from {
			case process.Placing:
				want = process.Cancelled
			case process.Creating, process.Queued, process.Running:
				want = process.Cancelling
			}
			if got.State() != want {
				t.Errorf("%s became %s", from, got.State())
			}
			es := must(db.Events(ctx, EventFilter{After: seq}))(t)
			if want == from {
				if len(es) != 0 || !cmp.Equal(a, got.Attempt) {
					t.Errorf("%s changed: %+v %s", from, es, cmp.Diff(a, got.Attempt))
				}
				continue
			}
			if len(es) != 2 || es[0].Kind != event.CancelRequested || es[0].Actor != "me" || es[1].Kind != event.StateChanged || es[1].State != string(want) {
				t.Errorf("%s: %+v", from, es)
			}
			if !got.Attempt.CancelRequestedAt.Equal(at) || got.Attempt.CancelRequestedBy != "me" {
				t.Errorf("%+v", got.Attempt)
			}
			again := must(db.RequestCancel(ctx, v.ID, "you", now()))(t)
			if d := cmp.Diff(got, again); d != "" || must(db.LastSeq(ctx))(t) != seq+2 {
				t.Errorf("%s: asking twice changed something: %s", from, d)
			}
		}
		if _, err := db.RequestCancel(ctx, "none", "me", now()); !errors.Is(err, process.ErrNotFound) {
			t.Error(err)
		}
	})
}

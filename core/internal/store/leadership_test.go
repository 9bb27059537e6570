package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// session is one server's access to the lease, with what it last saw.
type session struct {
	lease.Session
	t    *testing.T
	seen lease.State
}

func newSession(t *testing.T, db *DB, holder string, ttl time.Duration) *session {
	s := &session{Session: db.Lease(holder, "http://"+holder, ttl), t: t}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *session) look() lease.State {
	s.t.Helper()
	s.seen = must(s.Look(s.t.Context()))(s.t)
	return s.seen
}

func (s *session) take(silent bool) int64 {
	s.t.Helper()
	epoch, taken, err := s.Take(s.t.Context(), s.look(), silent)
	if err != nil {
		s.t.Fatal(err)
	}
	if !taken {
		return 0
	}
	return epoch
}

// One term follows another: the lease is not taken while it is held, and at once when its holder gives it back or dies.
func TestLeaseIsHeldByOne(t *testing.T) {
	db := open(t, newURL(t, migrations.PostgreSQL))
	a, b := newSession(t, db, "a", time.Minute), newSession(t, db, "b", time.Minute)
	if st := a.look(); !st.Live {
		t.Fatalf("the lease of the test's own server: %+v", st)
	}
	if n := a.take(false); n != 0 {
		t.Fatal("taken while it was held: ", n)
	}
	exec(t, db, "UPDATE leadership SET expires_at = 0")
	first := a.take(false)
	if first == 0 {
		t.Fatal("an expired lease was not taken")
	}
	if n := b.take(false); n != 0 {
		t.Fatal("two hold it")
	}
	if st := b.look(); st.Holder != "a" || st.Address != "http://a" || !st.Live || st.Epoch != first {
		t.Errorf("b sees %+v", st)
	}
	if held := must(a.Renew(t.Context(), first))(t); !held {
		t.Error("the holder cannot renew")
	}
	// Its process dies: nobody waits for the end of the minute.
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	second := within(t, func() int64 { return b.take(false) })
	if second != first+1 {
		t.Errorf("epoch %d after %d", second, first)
	}
	if held := must(a.Renew(t.Context(), first))(t); held {
		t.Error("a renewed a term that is over")
	}
	if err := b.Resign(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	if n := a.take(false); n != second+1 {
		t.Errorf("after it was given back: %d", n)
	}
	// A connection that broke and came back holds the lease as before.
	exec(t, db, "SELECT pg_terminate_backend(l.pid) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = 1852271718 AND l.objid = "+
		"(SELECT epoch FROM leadership) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())")
	var held bool
	for held = false; !held; { // the first call may find the connection broken
		var err error
		if held, err = a.Renew(t.Context(), second+1); err == nil && !held {
			t.Fatal("lost with the connection")
		}
	}
	if n := b.take(false); n != 0 {
		t.Error("taken from a holder with a new connection")
	}
}

// within repeats until there is a number, for PostgreSQL notices the end of a session a moment later.
func within(t *testing.T, f func() int64) int64 {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) { // polling with a deadline
		if n := f(); n != 0 {
			return n
		}
	}
	t.Fatal("it did not happen")
	return 0
}

func exec(t *testing.T, db *DB, query string) {
	t.Helper()
	if _, err := db.sql.Exec(query); err != nil {
		t.Fatal(err)
	}
}

// The database's clock steps. Forward: another server takes over early, which costs the first one its term and nothing
// else. Back: a lease that seems to last for an hour is taken from a holder that has been silent, not from one that renews.
func TestLeaseWhenTheClockSteps(t *testing.T) {
	db := open(t, newURL(t, migrations.PostgreSQL))
	a, b := newSession(t, db, "a", time.Minute), newSession(t, db, "b", time.Minute)
	exec(t, db, "UPDATE leadership SET expires_at = 0")
	first := a.take(false)

	exec(t, db, "UPDATE leadership SET expires_at = expires_at - 3600000000")
	second := b.take(false)
	if second != first+1 {
		t.Fatalf("an hour later the lease was not taken: %d", second)
	}
	if held := must(a.Renew(t.Context(), first))(t); held {
		t.Error("the first goes on")
	}

	exec(t, db, "UPDATE leadership SET expires_at = expires_at + 3600000000")
	if n := a.take(false); n != 0 {
		t.Error("taken although it lasts")
	}
	a.look()
	if held := must(b.Renew(t.Context(), second))(t); !held {
		t.Fatal("cannot renew")
	}
	if _, taken, err := a.Take(t.Context(), a.seen, true); err != nil || taken {
		t.Errorf("taken from one that has renewed since: %v", err)
	}
	exec(t, db, "UPDATE leadership SET expires_at = expires_at + 3600000000")
	if n := a.take(true); n != second+1 {
		t.Errorf("not taken from a silent one: %d", n)
	}
}

// What a leader of an earlier epoch writes is refused, whichever of its writes it is, and changes nothing. What users
// write is taken from every server.
func TestFencing(t *testing.T) {
	url := newURL(t, migrations.PostgreSQL)
	old := open(t, url)
	a := submit(t, old, "p", 1)[0].Attempt
	started := place(t, old, submit(t, old, "p", 1)[0].Attempt)
	next := open(t, url) // takes the lease

	ctx := t.Context()
	change := func(a *process.Attempt) ([]event.Event, error) {
		a.Reason = "late"
		return []event.Event{{Kind: event.ReasonChanged, Message: "late"}}, nil
	}
	last := must(next.LastSeq(ctx))(t)
	late := map[string]func(db *DB) error{
		"update-attempt": func(db *DB) error { _, err := db.UpdateAttempt(ctx, started.ID, change); return err },
		"decide": func(db *DB) error {
			_, err := db.Decide(ctx, placement.Decision{AttemptID: a.ID, Outcome: placement.Placed, ClusterID: cluster.DefaultID},
				func(a *process.Attempt) ([]event.Event, error) {
					a.State, a.ClusterID = process.Creating, cluster.DefaultID
					return []event.Event{{Kind: event.Decided}}, nil
				})
			return err
		},
		"report":  func(db *DB) error { return db.Report(ctx, event.Event{Kind: event.Orphan, Message: "late"}) },
		"observe": func(db *DB) error { return db.Observe(ctx, cluster.DefaultID, cluster.Observed{Health: cluster.Lost}) },
		"update-cluster": func(db *DB) error {
			_, err := db.UpdateCluster(ctx, cluster.DefaultID, nil, func(c *cluster.Cluster) error { c.QueueName = "late"; return nil })
			return err
		},
		"create-cluster": func(db *DB) error {
			_, err := db.CreateCluster(ctx, cluster.Cluster{Name: "late", Type: "x"})
			return err
		},
		"delete-cluster": func(db *DB) error { return db.DeleteCluster(ctx, cluster.DefaultID) },
		"set-setting":    func(db *DB) error { return db.SetSetting(ctx, SettingDefaultCluster, "") },
	}
	for op := range leading {
		if late[op] == nil {
			t.Errorf("%s is not tested", op)
		}
	}
	for op, write := range late {
		if err := write(old); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s of the leader that was: %v", op, err)
		}
	}
	if got := must(next.LastSeq(ctx))(t); got != last {
		t.Errorf("%d events came of it", got-last)
	}
	old.Follow(old.memory.term.Load())
	for op, write := range late {
		if err := write(old); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s of a follower: %v", op, err)
		}
	}
	if _, err := old.UpdateAttempt(ctx, newID(), change); !errors.Is(err, ErrNotLeader) {
		t.Error(err)
	}
	if _, err := next.UpdateAttempt(ctx, newID(), change); !errors.Is(err, process.ErrNotFound) {
		t.Error(err)
	}
	if must(next.UpdateAttempt(ctx, started.ID, change))(t).Reason != "late" {
		t.Error("the leader cannot write")
	}
	if v := must(old.RequestCancel(ctx, a.VersionID, "someone", now()))(t); v.Attempt.State != process.Cancelled {
		t.Error(v.Attempt.State)
	}
	submit(t, old, "p", 1)
}

// A new term waits for the writes of the one before that have held their epoch, and they hold up no renewal.
func TestTakeOverWaitsForWritesUnderWay(t *testing.T) {
	url := newURL(t, migrations.PostgreSQL)
	old := open(t, url)
	s, epoch := lead(t, old)
	started := place(t, old, submit(t, old, "p", 1)[0].Attempt)
	held, release := make(chan struct{}), make(chan struct{})
	wrote := make(chan error, 1)
	go func() {
		_, err := old.UpdateAttempt(context.Background(), started.ID, func(a *process.Attempt) ([]event.Event, error) {
			close(held)
			<-release
			a.Reason = "in time"
			return nil, nil
		})
		wrote <- err
	}()
	<-held
	if ok := must(s.Renew(t.Context(), epoch))(t); !ok {
		t.Error("the write holds up the renewal")
	}
	exec(t, old, "UPDATE leadership SET expires_at = 0")
	b := newSession(t, old, "b", time.Minute)
	b.look()
	took := make(chan error, 1)
	go func() {
		_, taken, err := b.Take(context.Background(), b.seen, false)
		if err == nil && !taken {
			err = errors.New("not taken")
		}
		took <- err
	}()
	within(t, func() (n int64) { // it waits for the row
		if err := old.sql.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE leadership%' AND datname = current_database()").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	})
	select {
	case err := <-took:
		t.Fatal("a new term began beside a write of the old one: ", err)
	default:
	}
	close(release)
	if err := <-wrote; err != nil {
		t.Error("the write was held in time: ", err)
	}
	if err := <-took; err != nil {
		t.Error(err)
	}
	if got := must(old.Attempt(t.Context(), started.ID))(t); got.Reason != "in time" {
		t.Error(got.Reason)
	}
}

// A server hears of what another one wrote.
func TestOtherServersEventsWakeReaders(t *testing.T) {
	url := newURL(t, migrations.PostgreSQL)
	one, other := open(t, url), open(t, url)
	woken, cancel := other.Hub().Subscribe(event.Submitted)
	defer cancel()
	submit(t, one, "p", 1)
	select {
	case <-woken:
	case <-time.After(20 * time.Second):
		t.Error("not woken")
	}
}

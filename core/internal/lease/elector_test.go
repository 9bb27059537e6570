package lease_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
	"github.com/nagelfluh/nagelfluh/rig/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 2 * time.Second

// server is an elector as a server has it, whose work is nothing but to wait.
type server struct {
	t    *testing.T
	e    *lease.Elector
	work chan *lease.Term // gets each term as it begins
	end  chan struct{}    // gets one as each ends
	fail chan error       // ends the work early
	stop func()
}

func start(t *testing.T, db *store.DB, name string) *server {
	s := &server{t: t, work: make(chan *lease.Term, 8), end: make(chan struct{}, 8), fail: make(chan error)}
	s.e = lease.New(lease.Options{
		Session: db.Lease(name, "http://"+name, ttl), TTL: ttl,
		Lead: func(ctx context.Context, term *lease.Term, begun func()) (err error) {
			s.work <- term
			begun()
			select {
			case <-ctx.Done():
			case err = <-s.fail:
			}
			s.end <- struct{}{}
			return err
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.e.Run(ctx) }()
	s.stop = func() { cancel(); <-done }
	t.Cleanup(s.stop)
	return s
}

func (s *server) leads() *lease.Term {
	s.t.Helper()
	select {
	case term := <-s.work:
		return term
	case <-time.After(30 * time.Second):
		s.t.Fatal("it does not lead")
		return nil
	}
}

// sees waits until the server's view is as wanted.
func (s *server) sees(want func(lease.View) bool) {
	s.t.Helper()
	for limit := time.After(30 * time.Second); ; {
		v, changed := s.e.View()
		if want(v) {
			return
		}
		select {
		case <-changed:
		case <-limit:
			s.t.Fatalf("it sees %+v", v)
		}
	}
}

func self(v lease.View) bool { return v.Self }

func led(address string) func(lease.View) bool {
	return func(v lease.View) bool { return !v.Self && v.Address == address }
}

func database(t *testing.T) (*store.DB, *sql.DB) {
	pg, err := postgres.Start(t.Context())
	if errors.Is(err, postgres.ErrNotInstalled) && !postgres.Required() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pg.Stop() })
	db, err := store.Open(t.Context(), store.Options{URL: pg.DSN, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("pgx", pg.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return db, raw
}

// One leads at a time, whatever happens: an end in order, a database clock that steps either way, work that fails.
func TestOneLeads(t *testing.T) {
	db, raw := database(t)
	exec := func(query string) {
		t.Helper()
		if _, err := raw.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	a := start(t, db, "a")
	first := a.leads()
	a.sees(self)
	b := start(t, db, "b")
	b.sees(led("http://a"))
	select {
	case <-b.work:
		t.Fatal("two lead")
	default:
	}
	if !first.Valid() || first.Left() > ttl {
		t.Errorf("the lease lasts for %s", first.Left())
	}

	// The database's clock goes an hour ahead: b takes over, and a hears of it by its next renewal.
	exec("UPDATE leadership SET expires_at = expires_at - 3600000000")
	second := b.leads()
	<-a.end
	a.sees(led("http://b"))
	if second.Epoch != first.Epoch+1 {
		t.Errorf("epochs %d and %d", first.Epoch, second.Epoch)
	}

	// b's work fails: it gives the lease up, and whoever is first has it.
	b.fail <- errors.New("out of order")
	<-b.end
	next, other := a, b
	var third *lease.Term
	select {
	case third = <-a.work:
	case third = <-b.work:
		next, other = b, a
	case <-time.After(30 * time.Second):
		t.Fatal("nobody leads")
	}
	if third.Epoch != second.Epoch+1 {
		t.Error(third.Epoch)
	}

	// An end in order hands over at once.
	began := time.Now()
	next.stop()
	fourth := other.leads()
	if took := time.Since(began); took > ttl {
		t.Errorf("handing over took %s", took)
	}
	if third.Epoch+1 != fourth.Epoch {
		t.Error(fourth.Epoch)
	}
	other.sees(self)
}

// A leader that cannot renew stops before its lease is over, and leads again when it can.
func TestLeaderThatCannotRenewStops(t *testing.T) {
	db, raw := database(t)
	a := start(t, db, "a")
	term := a.leads()
	tx, err := raw.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("SELECT 1 FROM leadership FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.end:
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
	if left := term.Left(); left > ttl/10 {
		t.Errorf("it stopped %s before the end", left)
	}
	a.sees(func(v lease.View) bool { return !v.Self })
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if again := a.leads(); again.Epoch <= term.Epoch {
		t.Error(again.Epoch)
	}
}

// The database's clock goes back an hour while the leader is gone without a word: the lease seems to last, and is taken all
// the same, for nobody renews it.
func TestSilentLeaderIsSucceeded(t *testing.T) {
	db, raw := database(t)
	if _, err := raw.Exec("UPDATE leadership SET epoch = 7, holder = 'gone', address = 'http://gone', " +
		"expires_at = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 3600000000"); err != nil {
		t.Fatal(err)
	}
	// Its session hangs on the other side of a broken network.
	conn, err := raw.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(1852271718, 7)"); err != nil {
		t.Fatal(err)
	}
	a := start(t, db, "a")
	a.sees(led("http://gone"))
	began := time.Now()
	if term := a.leads(); term.Epoch != 8 {
		t.Error(term.Epoch)
	}
	if took := time.Since(began); took < ttl {
		t.Errorf("taken after %s from one that could have been alive", took)
	}
}

package store

import (
	"database/sql"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// After PostgreSQL dropped all connections (a restart, a failover) the next calls get new ones.
func TestConnectionsComeBack(t *testing.T) {
	url := newURL(t, migrations.PostgreSQL)
	db := open(t, url)
	ctx := t.Context()
	a := submit(t, db, "p", 1)[0].Attempt
	bump := func(a *process.Attempt) ([]event.Event, error) {
		a.Tries++
		return nil, nil
	}
	var wg sync.WaitGroup
	for range connections {
		wg.Go(func() { must(db.UpdateAttempt(ctx, a.ID, bump))(t) })
	}
	wg.Wait()
	other, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"); err != nil {
		t.Fatal(err)
	}
	must(db.UpdateAttempt(ctx, a.ID, bump))(t)
	if got := must(db.Attempt(ctx, a.ID))(t); got.Tries != connections+1 {
		t.Error(got.Tries)
	}
}

// A server that hangs within a transaction does not hold up the others for ever.
func TestHangingTransactionsEnd(t *testing.T) {
	db := open(t, newURL(t, migrations.PostgreSQL))
	var timeout string
	if err := db.sql.QueryRow("SHOW idle_in_transaction_session_timeout").Scan(&timeout); err != nil || timeout != "6s" {
		t.Error(timeout, err)
	}
}

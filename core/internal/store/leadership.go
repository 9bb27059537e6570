package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/nagelfluh/nagelfluh/core/internal/lease"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// ErrNotLeader: only the leader may write this, and this server does not lead, or not any more.
var ErrNotLeader = errors.New("this server does not lead")

// leading are the writes of the leader alone. All others may come from any server.
var leading = map[string]bool{
	"update-attempt": true, "decide": true, "report": true, "observe": true,
	// What placement keeps in memory changes at the leader only: see memory.
	"create-cluster": true, "update-cluster": true, "delete-cluster": true, "set-setting": true,
}

// fencesItself are those that hold the epoch by the statement that reads the attempt: they are the many, and need no more
// round trips than without.
var fencesItself = map[string]bool{"update-attempt": true, "decide": true}

// Replicated says whether several servers may use the database.
func (db *DB) Replicated() bool { return db.dialect == migrations.PostgreSQL }

// Lead says that this server leads from now on, with an epoch that the lease gave it. Until Follow its writes of the
// leader are taken as long as the database knows no later epoch.
func (db *DB) Lead(epoch int64) {
	db.memory.generation.Add(1)
	db.memory.term.Store(epoch)
}

// Follow says that this server does not lead in that epoch any more: its writes of the leader are refused.
func (db *DB) Follow(epoch int64) { db.memory.term.CompareAndSwap(epoch, 0) }

// permit returns the epoch that a write needs; 0: none.
func (db *DB) permit(op string) (epoch int64, err error) {
	if !db.shared || !leading[op] {
		return 0, nil
	}
	if epoch = db.memory.term.Load(); epoch == 0 {
		return 0, fmt.Errorf("store: %s: %w", op, ErrNotLeader)
	}
	return epoch, nil
}

const holdTerm = "SELECT epoch FROM leadership WHERE id = 1 AND epoch = ? FOR KEY SHARE"

// fence makes sure that the epoch is the present one, and that no other begins before the commit.
func (t *tx) fence(ctx context.Context) error {
	var epoch int64
	err := t.get(ctx, holdTerm, []any{t.epoch}, &epoch)
	if noRows(err) {
		return fmt.Errorf("store: epoch %d is over: %w", t.epoch, ErrNotLeader)
	}
	return err
}

// leaseClass is the first half of the advisory locks of terms, the second being the epoch: "nglf".
const leaseClass = 0x6e676c66

// leaseSession implements lease.Session on a connection of its own. Beside the row, a leader holds an advisory lock for
// its epoch, which ends with the connection: of a leader that was killed nobody waits until the lease expires.
type leaseSession struct {
	config          *pgx.ConnConfig
	holder, address string
	ttl             time.Duration

	conn   *pgx.Conn // nil: none yet, or it failed
	locked int64     // the epoch whose lock this connection holds
}

// Lease returns a session for one server, whom others reach under an address. It connects when it is used.
func (db *DB) Lease(holder, address string, ttl time.Duration) lease.Session {
	return &leaseSession{config: db.pg, holder: holder, address: address, ttl: ttl}
}

// row runs a statement that gives one row.
func (s *leaseSession) row(ctx context.Context, query string, args []any, dest ...any) error {
	if s.conn == nil || s.conn.IsClosed() {
		conn, err := pgx.ConnectConfig(ctx, s.config)
		if err != nil {
			return fmt.Errorf("connect for the lease: %w", err)
		}
		s.conn, s.locked = conn, 0
	}
	err := s.conn.QueryRow(ctx, query, args...).Scan(dest...)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		_ = s.drop() // it may be what is wrong
	}
	return err
}

// clock is the database's, in its own unit.
const clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

const (
	takeLease = `UPDATE leadership SET epoch = epoch + 1, holder = $1, address = $2, expires_at = ` + clock + ` + $3
		WHERE id = 1 AND epoch = $4 AND (expires_at <= ` + clock + ` OR $5 AND expires_at = $6 OR pg_try_advisory_xact_lock($7, $4::int))
		RETURNING epoch, pg_try_advisory_lock($7, epoch::int)`
	renewLease  = `UPDATE leadership SET expires_at = ` + clock + ` + $1 WHERE id = 1 AND epoch = $2 AND holder = $3 RETURNING epoch`
	lockTerm    = `SELECT pg_try_advisory_lock($1, $2)`
	resignLease = `UPDATE leadership SET expires_at = 0 WHERE id = 1 AND epoch = $1 AND holder = $2 RETURNING epoch`
	lookAtLease = `SELECT epoch, holder, address, expires_at, expires_at > ` + clock + ` FROM leadership WHERE id = 1`
)

func (s *leaseSession) Look(ctx context.Context) (st lease.State, err error) {
	err = s.row(ctx, lookAtLease, nil, &st.Epoch, &st.Holder, &st.Address, &st.Mark, &st.Live)
	if err != nil {
		return lease.State{}, fmt.Errorf("read the lease: %w", err)
	}
	return st, nil
}

func (s *leaseSession) Take(ctx context.Context, seen lease.State, silent bool) (epoch int64, taken bool, err error) {
	var locked bool
	err = s.row(ctx, takeLease, []any{
		s.holder, s.address, s.ttl.Microseconds(), seen.Epoch, silent, seen.Mark, int32(leaseClass),
	}, &epoch, &locked)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("take the lease: %w", err)
	}
	if locked {
		s.locked = epoch
	}
	return epoch, true, nil
}

func (s *leaseSession) Renew(ctx context.Context, epoch int64) (held bool, err error) {
	err = s.row(ctx, renewLease, []any{s.ttl.Microseconds(), epoch, s.holder}, &epoch)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err == nil && s.locked != epoch { // on a new connection
		var locked bool
		if err = s.row(ctx, lockTerm, []any{int32(leaseClass), int32(epoch)}, &locked); err == nil && locked {
			s.locked = epoch
		}
	}
	if err != nil {
		return false, fmt.Errorf("renew the lease: %w", err)
	}
	return true, nil
}

func (s *leaseSession) Resign(ctx context.Context, epoch int64) error {
	err := s.row(ctx, resignLease, []any{epoch, s.holder}, &epoch)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("give the lease back: %w", err)
	}
	return s.drop() // and the lock with it
}

func (s *leaseSession) Close() error { return s.drop() }

func (s *leaseSession) drop() error {
	conn := s.conn
	if s.conn, s.locked = nil, 0; conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return conn.Close(ctx)
}

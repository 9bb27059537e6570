package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/nagelfluh/nagelfluh/migrations"
)

// readers is the size of SQLite's read pool, each with a cache of its own. In WAL mode readers wait neither for the writer
// nor for each other.
const readers = 4

// busyTimeout is how long another program on the same file is waited for.
const busyTimeout = 10 * time.Second

func openSQLite(ctx context.Context, path string, o Options) (_ *DB, err error) {
	if path == "" || path == ":memory:" {
		return nil, errors.New("store: sqlite needs a file: sqlite:PATH")
	}
	if path, err = createFile(path); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db := &DB{dialect: migrations.SQLite, log: o.Logger, sealer: o.Sealer}
	db.memory.alone = o.Server
	defer func() {
		if err != nil {
			_ = db.Close()
		}
	}()
	if o.Server {
		unlock, err := lockFile(path)
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		db.closers = append(db.closers, unlock)
	}

	// A server that writes without a break leaves the lock free only for moments, and SQLite, once it has waited for a
	// while, looks only every 100 ms: another program asks more often (see whileBusy), or it would never have its turn.
	wait := busyTimeout
	if !o.Server {
		wait = 5 * time.Millisecond
	}
	// FULL: a commit is on the disk before it is answered. Beside the writer's own connection there is one to prepare
	// statements and one for migrations; busy_timeout covers those and other programs, for the writer itself is alone.
	db.sql, err = sql.Open("sqlite", dsn(path, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)",
		fmt.Sprintf("busy_timeout(%d)", wait.Milliseconds()),
		"journal_size_limit(67108864)", "secure_delete(ON)")+"&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db.closers = append(db.closers, db.sql.Close)
	db.sql.SetMaxOpenConns(3)
	db.sql.SetMaxIdleConns(3)
	// Also creates the WAL files, which a connection that only reads cannot.
	// Two that turn a new file to WAL at once would wait for each other, so SQLite tells one of them "busy" without the
	// wait of busy_timeout; the next try finds the file turned.
	if err := whileBusy(ctx, func() error { return db.sql.PingContext(ctx) }); err != nil {
		return nil, fmt.Errorf("store: cannot open the SQLite database %s: %w", path, err)
	}
	db.rw = bun.NewDB(db.sql, sqlitedialect.New())

	ro, err := sql.Open("sqlite", dsn(path, "query_only(ON)", "busy_timeout(10000)", "cache_size(-1000)"))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db.closers = append(db.closers, ro.Close)
	ro.SetMaxOpenConns(readers)
	ro.SetMaxIdleConns(readers)
	db.ro = bun.NewDB(ro, sqlitedialect.New())

	db.closers = append(db.closers, db.hot.close, db.hotRead.close)
	g := newGroupWriter(db)
	db.writer = g
	db.closers = append(db.closers, g.close)
	return db, nil
}

// whileBusy runs f, which has done nothing when another program has the lock, until it has its turn or busyTimeout is over.
func whileBusy(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for {
		err := f()
		if lite := (*sqlite.Error)(nil); !errors.As(err, &lite) || lite.Code()&0xff != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-pause.C:
		}
	}
}

// dsn names the file as a URI, so that no character of its path is taken for an option.
func dsn(path string, pragmas ...string) string {
	q := url.Values{"_pragma": pragmas}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// createFile returns the real path of the database, so that two names of one file share its lock, and makes sure that
// only the owner can read it: it holds the ways into the clusters.
func createFile(path string) (string, error) {
	// A file that is there is not opened: closing it would drop the locks that this process has on it by another database.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	} else if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if err != nil {
		return "", err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// lockFile takes the lock of a server on the database at path. The system drops it when the process ends, however it
// ends. The file stays: removing it would let two servers lock two files of one name.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("cannot lock %s: %w", f.Name(), err)
		}
		holder := make([]byte, 20)
		n, _ := f.ReadAt(holder, 0)
		return nil, fmt.Errorf("%w: %s is held by process %s; stop that server, or use PostgreSQL to run several", ErrLocked, path, holder[:n])
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	}
	return f.Close, nil
}

package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// serverLock is the advisory lock of the server on a PostgreSQL database: the bytes "nagelfls". It lives with a session,
// so it ends with the server, however that ends.
const serverLock = 0x6e6167656c666c73

// How often the session of the lock is looked at, and how long an answer may take.
const (
	lockLook  = 2 * time.Second
	lockLimit = 5 * time.Second
)

// lockPostgres takes the server's lock in a session of its own and keeps an eye on that session: without it another
// server may take the lock, so lost is called, once, and this server has to end. release is called once.
func lockPostgres(ctx context.Context, c *pgx.ConnConfig, lost func(error)) (release func() error, err error) {
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the PostgreSQL database: %w", err)
	}
	var taken bool
	if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(serverLock)).Scan(&taken); err != nil || !taken {
		closing, cancel := context.WithTimeout(context.Background(), lockLimit)
		defer cancel()
		_ = conn.Close(closing)
		if err != nil {
			return nil, fmt.Errorf("take the server's lock: %w", err)
		}
		return nil, fmt.Errorf("%w: stop that server; several servers on one database come later", ErrLocked)
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(lockLook)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
			err := conn.Ping(ctx)
			cancel()
			if err != nil {
				lost(fmt.Errorf("the session that holds the server's lock in PostgreSQL is lost: %w", err))
				return
			}
		}
	})
	return func() error {
		close(stop)
		wg.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), lockLimit)
		defer cancel()
		return conn.Close(ctx)
	}, nil
}

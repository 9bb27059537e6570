package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"
)

// debug serves Go's profiles on an address of their own, when the operator wants that.
func (a *app) debug(ctx context.Context) error {
	if a.cfg.DebugListen == "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.cfg.DebugListen)
	if err != nil {
		return fmt.Errorf("debug_listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("serve profiles: %w", err)
		}
	})
	a.closers.add(func() error { defer wg.Wait(); return srv.Close() })
	a.log.Info("profiles are served", "address", l.Addr().String())
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
	"github.com/nagelfluh/nagelfluh/rig/faultproxy"
)

// driver breaks things as planned.
type driver struct {
	w     *world
	began time.Time
	// whole is held while a whole cluster or its link is out of order: one such fault a cluster at a time.
	whole []sync.Mutex
	crash []sync.Mutex // of each server

	mu    sync.Mutex
	done  map[plan.FaultKind]int
	errs  []error
	undos []func()
}

func newDriver(w *world, began time.Time) *driver {
	return &driver{w: w, began: began, whole: make([]sync.Mutex, len(w.names)), crash: make([]sync.Mutex, len(w.cores)), done: map[plan.FaultKind]int{}}
}

// run carries the plan out and returns when everything is whole again.
func (d *driver) run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, f := range d.w.o.Faults() {
		pause(ctx, time.Until(d.began.Add(f.At)))
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() { d.apply(ctx, f) })
	}
	if d.w.o.mutant == mutantSecondJob {
		wg.Go(func() { d.note(d.w.secondJob(ctx)) })
	}
	pause(ctx, time.Until(d.began.Add(d.w.o.Duration)))
	wg.Wait()
	for _, undo := range d.undos {
		undo()
	}
	return errors.Join(d.errs...)
}

func (d *driver) note(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.errs = append(d.errs, err)
}

// counts returns how often each kind of fault happened.
func (d *driver) counts() map[plan.FaultKind]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done
}

func (d *driver) apply(ctx context.Context, f plan.Fault) {
	var err error
	switch f.Kind {
	case plan.KillCore:
		d.crash[f.Replica].Lock()
		defer d.crash[f.Replica].Unlock()
		err = d.w.cores[f.Replica].crash(ctx, f.For)
	case plan.StallCore:
		d.crash[f.Replica].Lock()
		defer d.crash[f.Replica].Unlock()
		err = d.w.cores[f.Replica].stall(ctx, f.For)
	case plan.KillPlugin:
		err = d.killPlugin(ctx, f)
	case plan.FreezeLink, plan.RefuseLink, plan.StopServer, plan.StallServer:
		d.whole[f.Cluster].Lock()
		defer d.whole[f.Cluster].Unlock()
		err = d.outage(ctx, f)
	default:
		d.requests(f)
	}
	if err != nil {
		d.note(fmt.Errorf("%s: %w", f.Kind, err))
		return
	}
	d.mu.Lock()
	d.done[f.Kind]++
	d.mu.Unlock()
}

// outage has a whole cluster out of reach for a while. It always ends, whatever ctx does.
func (d *driver) outage(ctx context.Context, f plan.Fault) error {
	link, name := d.w.links[f.Cluster], d.w.names[f.Cluster]
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	switch f.Kind {
	case plan.FreezeLink:
		link.Freeze()
		pause(ctx, f.For)
		link.Thaw()
	case plan.RefuseLink:
		link.Refuse()
		pause(ctx, f.For)
		return link.Restore()
	case plan.StopServer:
		if err := d.w.clusters.StopAPIServer(after, name); err != nil {
			return err
		}
		pause(ctx, f.For)
		return d.w.clusters.StartAPIServer(after, name)
	case plan.StallServer:
		pid, err := d.w.clusters.Pid(after, name, "kube-apiserver")
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		pause(ctx, f.For)
		return syscall.Kill(pid, syscall.SIGCONT)
	}
	return nil
}

// requests has something happen to the next requests that the server sends to a cluster.
func (d *driver) requests(f plan.Fault) {
	link := d.w.links[f.Cluster]
	add := func(fault faultproxy.Fault, which func(*http.Request) bool) {
		undo := link.Add(fault, faultproxy.When(which), faultproxy.Times(f.Count))
		d.mu.Lock()
		d.undos = append(d.undos, undo)
		d.mu.Unlock()
	}
	switch f.Kind {
	case plan.CutLink:
		link.Cut()
	case plan.LoseAnswer:
		add(faultproxy.LoseAnswer(), func(r *http.Request) bool { return r.Method != http.MethodGet })
	case plan.DropRequest:
		add(faultproxy.Drop(), short)
	case plan.FailRequest:
		add(faultproxy.Answer(f.Status, http.Header{"Retry-After": {"1"}, "Content-Type": {"text/plain"}}, "soaked"), short)
	case plan.GoneWatch:
		add(faultproxy.Gone(), func(r *http.Request) bool { return r.URL.Query().Get("watch") != "" })
		link.Cut()
	case plan.CutLog:
		add(faultproxy.CutAfter(f.Bytes), func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/log") })
	case plan.SlowRequest:
		add(faultproxy.Delay(f.For), short)
	}
}

// short is every request that is no stream.
func short(r *http.Request) bool {
	return r.URL.Query().Get("watch") == "" && !strings.HasSuffix(r.URL.Path, "/log")
}

type pluginProcess struct {
	Name string
	Pid  int
}

// killPlugin kills one of the plugin processes that the server has at the moment. A server that is down has none.
func (d *driver) killPlugin(ctx context.Context, f plan.Fault) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var list struct{ Items []pluginProcess }
	_ = d.w.cores[f.Replica].get().Get(ctx, "/plugins", &list)
	alive := slices.DeleteFunc(list.Items, func(p pluginProcess) bool { return p.Pid <= 0 })
	if len(alive) == 0 {
		return nil
	}
	pid := alive[f.Count%len(alive)].Pid
	// The server may have died since, and its plugins with it.
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && !strings.HasPrefix(exe, d.w.plugins()) {
		return nil
	}
	err := syscall.Kill(pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return nil // it was quicker
	}
	return err
}

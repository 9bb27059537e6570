package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
)

// A plugin leads a process group of its own, so that a Ctrl-C in the server's terminal does not reach it first.
func TestProcessGroup(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	pid := statusOf(t, h, "selector-x").PID
	group, err := syscall.Getpgid(pid)
	if err != nil || group != pid || group == syscall.Getpgrp() {
		t.Errorf("group %d of process %d: %v", group, pid, err)
	}
}

// What a plugin starts ends with it, however it ends.
func TestChildrenOfPlugins(t *testing.T) {
	r := newRig(t)
	b := goodSelector(nil)
	b.Child = true
	r.install("selector-x", b)
	h := r.start(r.options())
	before := statusOf(t, h, "selector-x")
	if n := len(processesOf(r.base)); n != 2 {
		t.Fatalf("%d processes, want the plugin and its child", n)
	}
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before.PID })
	eventually(t, "the first child to end", func() bool { return len(processesOf(r.base)) == 2 })
	h.Close()
	eventually(t, "the second child to end", func() bool { return len(processesOf(r.base)) == 0 })
}

// kill -9 in the middle of calls: each ends at once with an error, and the plugin is restarted.
func TestKilledDuringCalls(t *testing.T) {
	r := newRig(t)
	told := filepath.Join(r.base, "told")
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": {Hang: true, Told: told}}))
	o := r.options()
	o.Plugins = map[string]Config{"selector-x": {Timeout: time.Hour}}
	h := r.start(o)
	chain := selectorOf(t, h, "selector-x")
	const calls = 20
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := chain.SelectCluster(t.Context(), snapshot(), placement.Request{})
			errs <- err
		}()
	}
	eventually(t, "all calls to hang", func() bool {
		raw, _ := os.ReadFile(told)
		return strings.Count(string(raw), "\n") == calls
	})
	before := statusOf(t, h, "selector-x")
	r.behave("selector-x", goodSelector(nil))
	killed := time.Now()
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for range calls {
		err := <-errs
		var failed *Error
		if !errors.As(err, &failed) || !failed.Temporary || !errors.Is(err, ErrNotRunning) {
			t.Fatalf("%v", err)
		}
		wants(t, err.Error(), "selector(selector-x): the process ended during SelectCluster: signal: killed")
	}
	if took := time.Since(killed); took > 2*time.Second {
		t.Errorf("the calls took %s to end", took)
	}
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if s := statusOf(t, h, "selector-x"); s.Restarts != 1 || s.PID == before.PID {
		t.Errorf("%+v", s)
	}
}

// A burst of calls while the plugin is killed: each gets a right answer or an error, never a wrong one.
func TestKilledDuringBurst(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": answer(saysSelected)}))
	h := r.start(r.options())
	chain := selectorOf(t, h, "selector-x")
	var wg sync.WaitGroup
	var mu sync.Mutex
	var wrong []string
	failed := 0
	for i := range 8 {
		wg.Go(func() {
			for j := range 50 {
				if i == 0 && j == 10 {
					_ = syscall.Kill(statusOf(t, h, "selector-x").PID, syscall.SIGKILL)
				}
				for {
					a, err := chain.SelectCluster(t.Context(), snapshot(), placement.Request{})
					if err == nil && (a.Kind != placement.Selected || a.ClusterID != "a") {
						mu.Lock()
						wrong = append(wrong, fmt.Sprintf("%+v", a))
						mu.Unlock()
					}
					if err == nil {
						break
					}
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(wrong) > 0 {
		t.Errorf("wrong answers: %v", wrong)
	}
	t.Logf("%d calls failed", failed)
}

// A plugin that fails its health checks is replaced, also when it is frozen.
func TestHealth(t *testing.T) {
	r := newRig(t)
	r.pace.health, r.pace.healthLimit = 5*time.Millisecond, 200*time.Millisecond
	sick := filepath.Join(r.base, "sick")
	b := goodSelector(nil)
	b.Unhealthy = sick
	r.install("selector-x", b)
	h := r.start(r.options())
	before := statusOf(t, h, "selector-x")
	r.write(sick, "", 0o644)
	until(t, h, "selector-x", "failed", func(s Status) bool { return strings.Contains(s.LastError, "it failed 3 health checks") })
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	next := until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before.PID })
	if err := syscall.Kill(next.PID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != next.PID })
}

// A deactivated plugin is started again by a change of its file and by an admin.
func TestReactivation(t *testing.T) {
	r := newRig(t)
	path := r.install("selector-x", behaviour{Exit: ptr(1)})
	h := r.start(r.options())
	untilState(t, h, "selector-x", Deactivated)
	first := statusOf(t, h, "selector-x")
	wants(t, first.LastError, "it failed 6 times within 10m0s", "an admin reactivates it")
	if first.Restarts != 5 {
		t.Errorf("%+v", first)
	}
	if err := h.Restart("selector-x"); err != nil {
		t.Fatal(err)
	}
	until(t, h, "selector-x", "deactivated again", func(s Status) bool { return s.State == Deactivated && s.Restarts == 11 })
	r.behave("selector-x", goodSelector(nil))
	stamp := time.Now().Add(time.Minute)
	if err := os.Chtimes(path, stamp, stamp); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chtimes(fakeBinary, time.Now(), time.Now()) })
	untilState(t, h, "selector-x", Running)
	if err := h.Restart("selector-y"); !errors.Is(err, ErrUnknownPlugin) {
		t.Errorf("%v", err)
	}
}

// Plugins start at the same time.
func TestParallelStart(t *testing.T) {
	r := newRig(t)
	release := filepath.Join(r.base, "release")
	started := filepath.Join(r.base, "started")
	for i := range 5 {
		b := goodSelector(nil)
		b.Release, b.Started = release, started
		r.install(fmt.Sprintf("selector-%d", i), b)
	}
	h := r.host(r.options())
	done := make(chan error, 1)
	go func() { done <- h.Start(t.Context()) }()
	eventually(t, "all to be started", func() bool {
		raw, _ := os.ReadFile(started)
		return strings.Count(string(raw), "\n") == 5
	})
	r.write(release, "", 0o644)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, s := range h.List() {
		if s.State != Running {
			t.Errorf("%+v", s)
		}
	}
}

// Closing twice, and before the start, is safe.
func TestCloseIsSafe(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	never := r.host(r.options())
	never.Close()
	never.Close()
	if err := never.Start(t.Context()); err == nil {
		t.Error("a closed host started")
	}
	h := r.start(r.options())
	if err := h.Start(t.Context()); err == nil {
		t.Error("a host started twice")
	}
	chain := selectorOf(t, h, "selector-x")
	h.Close()
	h.Close()
	if _, err := chain.SelectCluster(t.Context(), snapshot(), placement.Request{}); err == nil {
		t.Error("a closed host answered")
	}
}

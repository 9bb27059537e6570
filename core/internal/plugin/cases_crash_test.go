package plugin

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A plugin that exits at its second call: an error with its last lines, and the next call works.
func TestB66ExitsAtTheSecondCall(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(map[string]method{"SelectCluster": {Answer: []byte(saysAbstained), ExitAt: 2, Panic: "index out of range"}}))
	h := r.start(r.options())
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Fatal(err)
	}
	_, err := ask(t, h, "selector-x")
	if err == nil {
		t.Fatal("no error")
	}
	wants(t, err.Error(), "selector(selector-x): the process ended during SelectCluster", "exit code 3", "panic: index out of range")
	if strings.Count(err.Error(), "selector-x") != 1 {
		t.Errorf("the plugin is not named once: %v", err)
	}
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	s := untilState(t, h, "selector-x", Running)
	if s.Restarts != 1 {
		t.Errorf("restarts: %d", s.Restarts)
	}
	wants(t, s.LastError, "panic: index out of range")
}

// A plugin that exits at every call is restarted with back-off and then deactivated: no hot loop.
func TestB66ExitsAtEveryCall(t *testing.T) {
	r := newRig(t)
	r.pace.backoff = 300 * time.Millisecond
	r.pace.maxBackoff = 400 * time.Millisecond
	started := filepath.Join(r.base, "started")
	b := goodSelector(map[string]method{"SelectCluster": {Always: true}})
	b.Started = started
	r.install("selector-x", b)
	h := r.start(r.options())
	var backoffs int
	for {
		_, err := ask(t, h, "selector-x")
		if err == nil {
			t.Fatal("no error")
		}
		s := until(t, h, "selector-x", "settled", func(s Status) bool { return s.State != Starting })
		if s.State == Backoff {
			backoffs++
			wants(t, s.LastError, "the process ended", "exit code 3")
			untilState(t, h, "selector-x", Running)
		}
		if s.State == Deactivated {
			break
		}
	}
	raw, err := os.ReadFile(started)
	if err != nil {
		t.Fatal(err)
	}
	if starts := strings.Count(string(raw), "\n"); starts != 6 {
		t.Errorf("%d starts, want the first and 5 more", starts)
	}
	if backoffs == 0 {
		t.Error("no back-off was seen")
	}
	_, err = ask(t, h, "selector-x")
	wants(t, err.Error(), "it is deactivated", "exit code 3")
}

// kill -9 between two calls: the next call works.
func TestB66KilledBetweenCalls(t *testing.T) {
	r := newRig(t)
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	for range 3 {
		before := statusOf(t, h, "selector-x")
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, h, "selector-x", "restarted", func(s Status) bool { return s.State == Running && s.PID != before.PID })
		if _, err := ask(t, h, "selector-x"); err != nil {
			t.Fatal(err)
		}
	}
}

// An idle plugin is not taken for a crashed one.
func TestB66Idle(t *testing.T) {
	r := newRig(t)
	r.pace.health = time.Millisecond
	r.install("selector-x", goodSelector(nil))
	h := r.start(r.options())
	pid := statusOf(t, h, "selector-x").PID
	time.Sleep(500 * time.Millisecond) // the idleness itself
	if _, err := ask(t, h, "selector-x"); err != nil {
		t.Fatal(err)
	}
	if s := statusOf(t, h, "selector-x"); s.PID != pid || s.Restarts != 0 || s.LastError != "" {
		t.Errorf("a false crash: %+v", s)
	}
}

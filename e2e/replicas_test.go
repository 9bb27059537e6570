package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
	"github.com/nagelfluh/nagelfluh/rig/postgres"
)

// Two servers on one PostgreSQL, and the leader is killed or paused while jobs run, with an event stream and two log
// streams open at the other one: within 15 s that one leads, every job has one Job and one end, the streams go on without
// gap or double, and what the paused one does late changes nothing.
func TestB46_TwoServersOnPostgres(t *testing.T) {
	t.Run("killed", func(t *testing.T) {
		handOver(t, func(p *pair) { p.one.Kill() })
	})
	t.Run("paused", func(t *testing.T) {
		handOver(t, func(p *pair) {
			p.signal(p.one, syscall.SIGSTOP)
			p.resume = func() {
				p.signal(p.one, syscall.SIGCONT)
				p.until("the paused one follows", minute, func() (bool, error) {
					r, err := p.ready(p.one)
					return err == nil && r.Role == "follower" && r.Leader == p.two.URL, fmt.Errorf("it is %+v %w", r, err)
				})
			}
		})
	})
}

// Two servers on one SQLite file: the second refuses to start and says why.
func TestB46_TwoServersOnSQLite(t *testing.T) {
	w := newWorld(t, nil)
	second := w.o
	second.Dir, second.Ready = t.TempDir(), 20*time.Second
	second.Env = append(second.Env, "NAGELFLUH_DATABASE=sqlite:"+filepath.Join(w.o.Dir, "nagelfluh.db"),
		"NAGELFLUH_SECRETS_KEYSET_FILE="+filepath.Join(w.o.Dir, "keyset.json"))
	s, err := stack.StartServer(t.Context(), second)
	if err == nil {
		s.Kill()
		t.Fatal("a second server started on the same file")
	}
	for _, want := range []string{"another server uses this database", "is held by process " + strconv.Itoa(w.Pid()), "use PostgreSQL to run several"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the refusal does not say %q: %v", want, err)
		}
	}
}

// pair is two servers on one database, the first of which leads.
type pair struct {
	*world
	one, two *stack.Server
	resume   func() // of a paused leader; nil: it is dead
}

type readiness struct{ Status, Role, Leader string }

func (p *pair) ready(s *stack.Server) (r readiness, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/readyz", nil)
	if err != nil {
		return r, err
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	return r, json.NewDecoder(resp.Body).Decode(&r)
}

func (p *pair) signal(s *stack.Server, what syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(s.Pid(), what); err != nil {
		p.t.Fatal(err)
	}
}

func newPair(t *testing.T) *pair {
	pg, err := postgres.Start(t.Context())
	if errors.Is(err, postgres.ErrNotInstalled) && !postgres.Required() {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(); err != nil {
			t.Error(err)
		}
	})
	shared := t.TempDir()
	p := &pair{world: newWorld(t, func(o *stack.ServerOptions) {
		o.Env = append(o.Env, "NAGELFLUH_DATABASE="+pg.DSN, "NAGELFLUH_LOGS_ARCHIVE=file://"+filepath.Join(shared, "logs"),
			"NAGELFLUH_SECRETS_KEYSET_FILE="+filepath.Join(shared, "keyset.json"))
	})}
	p.one = p.Server
	o := p.o
	o.Dir, o.Key = t.TempDir(), p.Key
	if p.two, err = stack.StartServer(p.ctx, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(p.one.Pid(), syscall.SIGCONT) // whatever became of the test, it can end
		if err := p.two.Stop(20 * time.Second); err != nil {
			t.Error(err)
		}
	})
	for s, want := range map[*stack.Server]readiness{p.one: {"ready", "leader", ""}, p.two: {"ready", "follower", p.one.URL}} {
		p.until("both know who leads", minute, func() (bool, error) {
			r, err := p.ready(s)
			return err == nil && r == want, fmt.Errorf("%s is %+v %w", s.URL, r, err)
		})
	}
	return p
}

func handOver(t *testing.T, harm func(*pair)) {
	p := newPair(t)
	jobs := p.watchJobs()
	first := p.one
	p.Server = p.two // everything is asked of the one that follows

	// The follower has the leader do what only that can.
	r, err := p.Do(p.ctx, http.MethodPatch, "/clusters/gpu", map[string]any{"labels": map[string]string{"seen": "by-both"}})
	if err != nil || r.Status != http.StatusOK {
		t.Fatalf("an edit at the follower: %d %s %v", r.Status, r.Body, err)
	}
	if r, err := p.Do(p.ctx, http.MethodPatch, "/clusters/gpu", map[string]any{}, "Nagelfluh-Forwarded", "somebody"); err != nil || r.Code() != "no_leader" {
		t.Errorf("a request that was passed on is passed on again: %d %s %v", r.Status, r.Body, err)
	}

	const lines = 300
	talk := `i=0; while [ $i -lt ` + strconv.Itoa(lines) + ` ]; do echo "line $i of the talker"; i=$((i+1)); sleep 0.1; done`
	talker := p.submit(submission("talker", 0, "sh", "-c", talk))
	all := []version{talker}
	for i := range 6 {
		all = append(all, p.submit(submission(fmt.Sprintf("before-%d", i), i%2, "sh", "-c", "sleep 8; echo done")))
	}
	events := p.listen(p.two, "/events?after=0", "text/event-stream")
	sse := p.listen(p.two, "/versions/"+talker.ID+"/logs", "text/event-stream")
	raw := p.listen(p.two, "/versions/"+talker.ID+"/logs?follow=true", "text/plain")
	p.until("the log comes", minute, func() (bool, error) {
		return strings.Contains(raw.text(), "line 20 of") && strings.Contains(sse.text(), "line 20 of"), fmt.Errorf("got %q and %q", raw.text(), sse.text())
	})

	harm(p)
	began := time.Now()
	// Submissions are taken meanwhile.
	for i := range 4 {
		all = append(all, p.submit(submission(fmt.Sprintf("meanwhile-%d", i), i%2, "true")))
	}
	stopped := p.submit(submission("stopped", 0, "sleep", "3600"))
	p.until("the other one leads", minute, func() (bool, error) {
		r, err := p.ready(p.two)
		return err == nil && r.Role == "leader", fmt.Errorf("it is %+v %w", r, err)
	})
	took := time.Since(began)
	t.Logf("taken over after %s", took.Round(10*time.Millisecond))
	if took > 15*time.Second {
		t.Errorf("the take-over took %s", took)
	}
	if p.resume != nil {
		p.resume()
		// It serves again, through the new leader.
		p.Server = first
		all = append(all, p.submit(submission("through-the-old-one", 1, "true")))
		if out, err := p.CLI(p.ctx, "cancel", stopped.ID); err != nil {
			t.Error(out, err)
		}
		p.Server = p.two
	} else if out, err := p.CLI(p.ctx, "cancel", stopped.ID); err != nil {
		t.Error(out, err)
	}
	for i := range 2 {
		all = append(all, p.submit(submission(fmt.Sprintf("after-%d", i), i, "true")))
	}

	p.allEnded(3 * minute)
	for _, v := range all {
		v = p.get(v.ID)
		if v.State != "succeeded" {
			t.Errorf("%s is %s: %s", v.ProcessName, v.State, v.Attempt.Reason)
		}
		if on := jobs.of(v.ID); len(on) != 1 {
			t.Errorf("%s had Jobs on %v, want one", v.ProcessName, on)
		}
	}
	if v := p.get(stopped.ID); v.State != "cancelled" {
		t.Errorf("the cancelled one is %s", v.State)
	}

	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d of the talker\n", i)
	}
	for name, s := range map[string]*listener{"text": raw, "events": sse} {
		select {
		case <-s.done:
		case <-time.After(minute):
			t.Errorf("the log as %s does not end", name)
		}
		if got := s.text(); got != want.String() {
			t.Errorf("the log as %s differs: %s", name, difference(got, want.String()))
		}
	}
	if out, err := p.CLI(p.ctx, "logs", talker.ID); err != nil || out != want.String() {
		t.Errorf("the stored log differs: %v %s", err, difference(out, want.String()))
	}

	var newest struct{ Seq int64 }
	p.until("the stream of events is at its end", minute, func() (bool, error) {
		seqs := events.numbers()
		if len(seqs) == 0 {
			return false, errors.New("it is empty")
		}
		newest.Seq = seqs[len(seqs)-1]
		return events.ends(talker.ID) == 1, fmt.Errorf("%d events up to %d", len(seqs), newest.Seq)
	})
	for i, n := range events.numbers() {
		if n != int64(i+1) {
			t.Fatalf("event %d came as the %dth", n, i+1)
		}
	}
	for _, v := range all {
		if n := events.ends(v.ID); n != 1 {
			t.Errorf("%s has %d ends in the stream", v.ProcessName, n)
		}
	}
}

// listener collects an open stream.
type listener struct {
	mu   sync.Mutex
	log  strings.Builder
	seqs []int64
	over map[string]int // ends by version
	done chan struct{}
}

func (p *pair) listen(s *stack.Server, path, accept string) *listener {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.ctx, http.MethodGet, s.URL+"/api/v1"+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Key)
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // the reader below closes it when the stream ends
	if err != nil {
		p.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: status %d", path, resp.StatusCode)
	}
	l := &listener{over: map[string]int{}, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		kind := ""
		for {
			line, err := in.ReadString('\n')
			l.mu.Lock()
			if accept == "text/plain" {
				l.log.WriteString(line)
			} else {
				l.event(&kind, strings.TrimSuffix(line, "\n"))
			}
			l.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return l
}

// event takes one line of server-sent events.
func (l *listener) event(kind *string, line string) {
	field, value, _ := strings.Cut(line, ": ")
	switch field {
	case "id":
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			l.seqs = append(l.seqs, n)
		}
	case "event":
		*kind = value
	case "data":
		var d struct {
			Text      string
			VersionID string `json:"version_id"`
			State     string
		}
		_ = json.Unmarshal([]byte(value), &d)
		switch *kind {
		case "log":
			l.log.WriteString(d.Text)
		case "state":
			if (version{State: d.State}).ended() {
				l.over[d.VersionID]++
			}
		}
	}
}

func (l *listener) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.String()
}

func (l *listener) numbers() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int64(nil), l.seqs...)
}

func (l *listener) ends(version string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.over[version]
}

// difference tells where two texts part.
func difference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	around := func(s string) string { return s[max(0, i-40):min(len(s), i+60)] }
	return fmt.Sprintf("%d bytes, want %d; at %d: %q, want %q", len(got), len(want), i, around(got), around(want))
}

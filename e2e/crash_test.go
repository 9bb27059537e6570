package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

const minute = time.Minute

// A selector killed again and again during a burst: every job is placed correctly in the end, none on a wrong cluster.
func TestSelectorKilledDuringBurst(t *testing.T) {
	w := newWorld(t, nil)
	jobs := w.watchJobs()
	const n = 200

	stop := make(chan struct{})
	var kills atomic.Int32
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
			}
			var list struct {
				Items []struct {
					Name string
					Pid  int
				}
			}
			if err := w.Get(w.ctx, "/plugins", &list); err != nil {
				t.Error(err)
				return
			}
			for _, p := range list.Items {
				if p.Name == "selector-gpu" && p.Pid > 0 && kills.Load() < 5 && syscall.Kill(p.Pid, syscall.SIGKILL) == nil {
					kills.Add(1)
				}
			}
		}
	})
	want := map[string]string{}
	for i := range n {
		gpus, cluster := 0, "Default Cluster"
		if i%2 == 0 {
			gpus, cluster = 1, "gpu"
		}
		v := w.submit(submission(fmt.Sprintf("burst-%d", i), gpus, "true"))
		want[v.ID] = cluster
	}
	all := w.allEnded(5 * minute)
	close(stop)
	killer.Wait()

	if kills.Load() == 0 {
		t.Error("the selector was never killed: the test shows nothing")
	}
	if len(all) != n {
		t.Errorf("%d versions, want %d", len(all), n)
	}
	row := map[string]string{"main": "Default Cluster", "gpu": "gpu"}
	for _, v := range all {
		if v.State != "succeeded" || v.Attempt.ClusterName != want[v.ID] {
			t.Errorf("%s is %s on %q (%s), want succeeded on %q", v.ProcessName, v.State, v.Attempt.ClusterName, v.Attempt.Reason, want[v.ID])
		}
		if on := jobs.of(v.ID); len(on) != 1 || row[on[0]] != want[v.ID] {
			t.Errorf("%s had Jobs on %v, want one on %q", v.ProcessName, on, want[v.ID])
		}
	}
}

// client submits with idempotency keys and goes on over crashes, as a careful caller does.
type client struct {
	w        *world
	mu       sync.Mutex
	accepted map[string]string // key: version
}

// send submits until the server has answered; it calls down when the server cannot be reached.
func (c *client) send(key string, gpus int, down func()) {
	body := submission("job-"+key, gpus, "true")
	for {
		c.mu.Lock()
		w := c.w.Server
		c.mu.Unlock()
		r, err := w.Do(c.w.ctx, http.MethodPost, "/projects/default/processes", body, "Idempotency-Key", key)
		if c.w.ctx.Err() != nil {
			return
		}
		if err != nil || r.Status == http.StatusServiceUnavailable {
			down()
			continue
		}
		var v version
		if err := json.Unmarshal(r.Body, &v); err != nil || r.Status/100 != 2 {
			c.w.t.Errorf("submit %s: status %d: %s", key, r.Status, head(r.Body))
			return
		}
		c.mu.Lock()
		if old := c.accepted[key]; old != "" && old != v.ID {
			c.w.t.Errorf("key %s is version %s and %s", key, old, v.ID)
		}
		c.accepted[key] = v.ID
		c.mu.Unlock()
		return
	}
}

// checkExactlyOne holds the versions against what was accepted and what the clusters saw.
func (c *client) checkExactlyOne(jobs *ledger, limit time.Duration) {
	c.w.t.Helper()
	all := c.w.allEnded(limit)
	stored := map[string]version{}
	for _, v := range all {
		stored[v.ID] = v
		if v.State != "succeeded" {
			c.w.t.Errorf("%s is %s: %s", v.ProcessName, v.State, v.Attempt.Reason)
		}
		if on := jobs.of(v.ID); len(on) != 1 {
			c.w.t.Errorf("%s (%s) had %d Jobs, want one", v.ProcessName, v.ID, len(on))
		}
	}
	for key, id := range c.accepted {
		if _, ok := stored[id]; !ok {
			c.w.t.Errorf("accepted version %s (key %s) is lost", id, key)
		}
	}
	if jobs.versions() != len(all) {
		c.w.t.Errorf("the clusters saw Jobs of %d versions, %d are stored", jobs.versions(), len(all))
	}
}

// Core killed with SIGKILL ten times at random during 500 submissions, restarted each time: every accepted version ends
// with exactly one Job, none lost.
func TestRandomKills(t *testing.T) {
	w := newWorld(t, func(o *stack.ServerOptions) { o.Listen = freeAddress(t) })
	jobs := w.watchJobs()
	c := &client{w: w, accepted: map[string]string{}}
	const total, kills = 500, 10
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	killAt := map[int]bool{}
	for len(killAt) < kills {
		killAt[rnd.IntN(total-10)+5] = true
	}

	var sent atomic.Int32
	keys := make(chan int)
	var senders sync.WaitGroup
	for range 8 {
		senders.Go(func() {
			for k := range keys {
				c.send(fmt.Sprint(k), k%2, func() { pause(w.ctx.Done(), 20*time.Millisecond) })
				sent.Add(1)
			}
		})
	}
	for k := range total {
		if killAt[k] {
			// Somewhere in the middle of what is under way.
			pause(w.ctx.Done(), time.Duration(rnd.IntN(30))*time.Millisecond)
			w.Kill()
			s, err := stack.StartServer(w.ctx, w.o)
			if err != nil {
				t.Fatal(err)
			}
			c.mu.Lock()
			w.Server = s
			c.mu.Unlock()
		}
		keys <- k
	}
	close(keys)
	senders.Wait()
	if len(c.accepted) != total {
		t.Errorf("%d of %d were accepted", len(c.accepted), total)
	}
	c.checkExactlyOne(jobs, 5*minute)
}

// Core killed before and after every database write and every cluster call of the submission path: every accepted
// version ends with exactly one Job, none lost.
func TestFailpoints(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "nagelfluh")
	build := exec.Command("go", "build", "-trimpath", "-tags", "failpoint", "-o", binary, "./cmd/nagelfluh")
	build.Dir = filepath.Join(root, "core")
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build with failpoints: %v\n%s", err, out)
	}

	list := filepath.Join(t.TempDir(), "hits")
	w := newWorld(t, func(o *stack.ServerOptions) {
		o.Binary, o.Listen = binary, freeAddress(t)
	})
	jobs := w.watchJobs()
	c := &client{w: w, accepted: map[string]string{}}
	plain := w.o.Env

	restart := func(env ...string) {
		t.Helper()
		w.Kill()
		w.o.Env = append(append([]string{}, plain...), env...)
		w.start()
	}

	// Learn the names on one whole path.
	restart("NAGELFLUH_FAILPOINT_LIST=" + list)
	c.send("learn-0", 0, func() { t.Fatal("the server is down") })
	c.send("learn-1", 1, func() { t.Fatal("the server is down") })
	w.allEnded(minute)
	names := hitNames(t, list)
	t.Logf("%d failpoints: %s", len(names), strings.Join(names, " "))
	for _, must := range []string{"store.", "kube.create.before", "kube.create.after"} {
		if !strings.Contains(strings.Join(names, " "), must) {
			t.Errorf("no failpoint %s* is on the path", must)
		}
	}

	for i, name := range names {
		// Health checks and such pass points at start already, so the server may die before it listens: then the death
		// has happened, and the jobs come after it.
		w.Kill()
		w.o.Env = append(append([]string{}, plain...), "NAGELFLUH_FAILPOINT="+name)
		s, err := stack.StartServer(w.ctx, w.o)
		if err == nil {
			w.Server = s
		} else {
			restart()
		}
		var once sync.Once
		revive := func() { once.Do(func() { restart() }) }
		c.send(fmt.Sprintf("%d-plain", i), 0, revive)
		c.send(fmt.Sprintf("%d-gpu", i), 1, revive)
		select {
		case <-w.Done():
		case <-time.After(3 * time.Second):
			// The point is passed later in a job's life, or was passed by another path; the check at the end counts.
		}
		once.Do(func() { restart() })
	}
	c.checkExactlyOne(jobs, 3*minute)
}

func hitNames(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		seen[s.Text()] = true
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

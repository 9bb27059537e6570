package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// happening is what the test reads of an event.
type happening struct {
	Seq     int64
	At      time.Time
	Kind    string
	State   string
	Actor   string
	Cluster string `json:"cluster_name"`
	Message string
	Data    struct {
		Was      string
		ExitCode *int `json:"exit_code"`
	}
}

// The timeline of what ran on a real cluster tells everything once, in order, and without a step that is not told.
func TestTimeline(t *testing.T) {
	w := newWorld(t, nil)
	good, bad, long := w.submit(submission("good", 0, "sh", "-c", "sleep 1")), w.submit(submission("bad", 1, "sh", "-c", "sleep 1; exit 3")), w.submit(submission("long", 0, "sleep", "600"))
	w.until("the long one runs", time.Minute, func() (bool, error) { return w.get(long.ID).State == "running", nil })
	if r, err := w.Do(w.ctx, http.MethodPost, "/versions/"+long.ID+"/cancel", nil); err != nil || r.Status/100 != 2 {
		t.Fatal(err, r)
	}
	w.allEnded(time.Minute)

	ran := []string{"placing", "creating", "queued", "running"}
	for name, test := range map[string]struct {
		v       version
		cluster string
		states  []string
		exit    string
	}{
		"good": {good, "Default Cluster", append(slices.Clone(ran), "succeeded"), "0"},
		"bad":  {bad, "gpu", append(slices.Clone(ran), "failed"), "3"},
		"long": {long, "Default Cluster", append(slices.Clone(ran), "cancelling", "cancelled"), "none"},
	} {
		t.Run(name, func(t *testing.T) {
			var all struct{ Items []happening }
			if err := w.Get(w.ctx, "/versions/"+test.v.ID+"/timeline", &all); err != nil {
				t.Fatal(err)
			}
			var lines, states []string
			kinds := map[string]int{}
			state, exit := "placing", "none"
			for i, e := range all.Items {
				lines = append(lines, fmt.Sprintf("%d %s %s %s by %s at %q: %s", e.Seq, e.Kind, e.State, e.Data.Was, e.Actor, e.Cluster, e.Message))
				kinds[e.Kind]++
				if i > 0 && (e.Seq <= all.Items[i-1].Seq || e.At.Before(all.Items[i-1].At)) {
					t.Error("out of order: ", e)
				}
				if slices.ContainsFunc(all.Items[:i], func(o happening) bool { return o.Kind == e.Kind && o.State == e.State && o.Message == e.Message }) {
					t.Error("told twice: ", lines[i])
				}
				if e.Kind == "state" {
					if e.Data.Was != state {
						t.Errorf("%s was told before, and now %s", state, e.Data.Was)
					}
					state = e.State
				}
				if states = append(states, e.State); len(states) > 1 && states[len(states)-2] == e.State {
					states = states[:len(states)-1]
				}
				if e.Data.ExitCode != nil {
					exit = fmt.Sprint(*e.Data.ExitCode)
				}
				if e.State != "placing" && e.Cluster != test.cluster {
					t.Error("at another cluster: ", lines[i])
				}
			}
			if !slices.Equal(states, test.states) || state != w.get(test.v.ID).State || exit != test.exit {
				t.Errorf("states %q and exit code %s, want %q and %s", states, exit, test.states, test.exit)
			}
			want := map[string]int{"submitted": 1, "decided": 1, "run-started": 1}
			if name == "long" {
				want["cancel-requested"] = 1
			}
			for kind, n := range kinds {
				if kind != "state" && kind != "reason" && want[kind] != n {
					t.Errorf("%d of the kind %s", n, kind)
				}
			}
			for kind, n := range want {
				if kinds[kind] != n {
					t.Errorf("%d of the kind %s, want %d", kinds[kind], kind, n)
				}
			}
			if t.Failed() {
				t.Log(strings.Join(lines, "\n"))
			}
		})
	}
}

package placement

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

type rows struct {
	clusters []cluster.Cluster
	def      string
}

func (r *rows) Clusters(context.Context) ([]cluster.Cluster, error) { return r.clusters, nil }
func (r *rows) DefaultCluster(context.Context) (string, error)      { return r.def, nil }

// scripted is a selector that answers what the test says.
type scripted struct {
	name   string
	ignore bool
	answer func(*Snapshot, Request) (Answer, error)
	choice func(*Snapshot) (Choice, error)
}

func (s scripted) Name() string       { return s.name }
func (s scripted) IgnoreErrors() bool { return s.ignore }
func (s scripted) Hooks() Hooks {
	return Hooks{SelectCluster: s.answer != nil, SelectClusters: s.choice != nil}
}
func (s scripted) SelectCluster(_ context.Context, sn *Snapshot, r Request) (Answer, error) {
	return s.answer(sn, r)
}
func (s scripted) SelectClusters(_ context.Context, sn *Snapshot, _ User, _ Project) (Choice, error) {
	return s.choice(sn)
}

func says(name string, a Answer) Selector {
	return scripted{name: name, answer: func(*Snapshot, Request) (Answer, error) { return a, nil }}
}

func fails(name string, ignore bool) Selector {
	return scripted{name: name, ignore: ignore, answer: func(*Snapshot, Request) (Answer, error) {
		return Answer{}, fmt.Errorf("selector(%s): crashed", name)
	}}
}

func gpus(free int64) *cluster.Capacity {
	return &cluster.Capacity{Nodes: 1, Resources: map[string]cluster.ResourceCapacity{
		"nvidia.com/gpu": {NodeMax: 8, NodeFreeMax: free, Total: 8, Free: free},
	}}
}

func fixture() *rows {
	return &rows{def: "d", clusters: []cluster.Cluster{
		{ID: "d", Name: "default", Type: "kubeconfig", Active: true},
		{ID: "g", Name: "gpu", Type: "kubeconfig", Active: true, Observed: cluster.Observed{Health: cluster.Ready, Capacity: gpus(8)}},
		{ID: "s", Name: "sick", Type: "kubeconfig", Active: true, Observed: cluster.Observed{Health: cluster.Suspect, Message: "no answer"}},
		{ID: "c", Name: "corded", Type: "kubeconfig", Active: true, Cordon: &cluster.Cordon{Reason: "upgrade"}},
		{ID: "r", Name: "retired", Type: "kubeconfig"},
		{ID: "n", Name: "nobody", Type: "eks", Active: true},
	}}
}

func engine(r *rows, sel ...Selector) *Engine {
	return New(Options{
		Store: r, Ledger: NewLedger(),
		Selectors:   func() []Selector { return sel },
		ServedTypes: func() map[string]string { return map[string]string{"kubeconfig": "provider-kubeconfig"} },
	})
}

func TestChain(t *testing.T) {
	sel := func(id string) Answer { return Answer{Kind: Selected, ClusterID: id, Reason: "because"} }
	abst := Answer{Kind: Abstained}
	for name, c := range map[string]struct {
		selectors []Selector
		binding   bool
		request   string
		home      string
		allowed   []string
		def       string
		outcome   Outcome
		cluster   string
		code      string
		reason    string
	}{
		"the default when nobody has an opinion":     {outcome: Placed, cluster: "d", code: CodeDefault},
		"an abstention asks on":                      {selectors: []Selector{says("a", abst), says("b", sel("g"))}, outcome: Placed, cluster: "g", code: CodeSelected},
		"the first real answer wins":                 {selectors: []Selector{says("a", sel("g")), says("b", sel("d"))}, outcome: Placed, cluster: "g", code: CodeSelected},
		"home before default":                        {home: "g", outcome: Placed, cluster: "g", code: CodeHome},
		"a request before selectors":                 {request: "d", selectors: []Selector{says("a", sel("g"))}, outcome: Placed, cluster: "d", code: CodeRequested},
		"a refusal ends the chain":                   {selectors: []Selector{says("a", Answer{Kind: Refused, Reason: "full"}), says("b", sel("d"))}, outcome: Wait, code: CodeRefused, reason: "full"},
		"a final refusal fails":                      {selectors: []Selector{says("a", Answer{Kind: Refused, Fail: true, Reason: "never"})}, outcome: Fail, code: CodeRefused},
		"an error is no abstention":                  {selectors: []Selector{fails("a", false), says("b", sel("d"))}, outcome: Retry, code: CodePluginError, reason: "selector(a): crashed"},
		"an ignored error asks on":                   {selectors: []Selector{fails("a", true), says("b", sel("g"))}, outcome: Placed, cluster: "g", code: CodeSelected},
		"an unset answer is an error":                {selectors: []Selector{says("a", Answer{})}, outcome: Retry, code: CodePluginError, reason: "no answer"},
		"an unknown cluster is an error":             {selectors: []Selector{says("a", sel("x"))}, outcome: Retry, code: CodePluginError, reason: "not among the candidates"},
		"an ineligible cluster is an error":          {selectors: []Selector{says("a", sel("s"))}, outcome: Retry, code: CodePluginError, reason: "not among the candidates"},
		"a suspect default waits":                    {def: "s", outcome: Wait, code: CodeNotCandidate, reason: "suspect: no answer"},
		"a cordoned home waits":                      {home: "c", outcome: Wait, code: CodeNotCandidate, reason: "cordoned: upgrade"},
		"a retired request waits":                    {request: "r", outcome: Wait, code: CodeNotCandidate, reason: "retired"},
		"an unserved type waits":                     {request: "n", outcome: Wait, code: CodeNotCandidate, reason: `"eks"`},
		"an unknown request waits":                   {request: "zz", outcome: Wait, code: CodeUnknownCluster},
		"a default outside of the allowed set waits": {allowed: []string{"g"}, outcome: Wait, code: CodeNotCandidate, reason: "not allowed for project"},
		"no default waits":                           {def: "-", outcome: Wait, code: CodeNoDefault},
		"binding selectors overrule":                 {binding: true, request: "d", selectors: []Selector{says("a", sel("g"))}, outcome: Fail, code: CodeOverruled},
		"binding selectors agree":                    {binding: true, request: "g", selectors: []Selector{says("a", sel("g"))}, outcome: Placed, cluster: "g", code: CodeSelected},
		"binding selectors abstain":                  {binding: true, request: "g", selectors: []Selector{says("a", abst)}, outcome: Placed, cluster: "g", code: CodeRequested},
	} {
		t.Run(name, func(t *testing.T) {
			r := fixture()
			if c.def != "" {
				r.def = strings.Trim(c.def, "-")
			}
			e := engine(r, c.selectors...)
			e.o.Binding = c.binding
			d, err := e.Decide(t.Context(), "att", Request{
				Project: Project{Name: "p", HomeCluster: c.home, Allowed: c.allowed},
				Version: process.Version{Spec: process.Spec{Cluster: c.request}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if d.Outcome != c.outcome || d.ClusterID != c.cluster || d.ReasonCode != c.code || !strings.Contains(d.Reason, c.reason) {
				t.Errorf("got %s %q %s %q, want %s %q %s …%q…", d.Outcome, d.ClusterID, d.ReasonCode, d.Reason, c.outcome, c.cluster, c.code, c.reason)
			}
			if len(d.Candidates) != len(r.clusters) {
				t.Errorf("the decision shows %d clusters, want all %d", len(d.Candidates), len(r.clusters))
			}
		})
	}
}

func TestSelectClustersIsEnforced(t *testing.T) {
	only := func(ids ...string) Selector {
		return scripted{name: "lister", choice: func(*Snapshot) (Choice, error) { return Choice{Clusters: ids}, nil }}
	}
	broken := scripted{name: "lister", choice: func(*Snapshot) (Choice, error) { return Choice{}, errors.New("selector(lister): down") }}

	d, _ := engine(fixture(), only("g")).Decide(t.Context(), "att", Request{User: User{Name: "u"}})
	if d.Outcome != Wait || !strings.Contains(d.Reason, "selector lister does not offer it") {
		t.Errorf("the default is not offered, got %s %q", d.Outcome, d.Reason)
	}
	if d, _ := engine(fixture(), broken).Decide(t.Context(), "att", Request{}); d.Outcome != Retry {
		t.Errorf("an error refuses, got %s %q", d.Outcome, d.Reason)
	}
	if d, _ := engine(fixture(), only("s")).Decide(t.Context(), "att", Request{}); d.Outcome != Retry || !strings.Contains(d.Reason, "not among") {
		t.Errorf("offering an ineligible cluster is an error, got %s %q", d.Outcome, d.Reason)
	}
	got, err := engine(fixture(), only("g", "d")).Choices(t.Context(), User{}, Project{})
	if err != nil || len(got) != 2 || got[0].ID != "g" || got[1].ID != "d" {
		t.Errorf("choices in the selector's order: got %v, %v", got, err)
	}
	if _, err := engine(fixture(), broken).Choices(t.Context(), User{}, Project{}); err == nil {
		t.Error("choices of a broken selector: want an error")
	}
}

// gpuLike selects g when it shows room, else refuses: what a selector does that counts.
var gpuLike = scripted{name: "gpu", answer: func(s *Snapshot, _ Request) (Answer, error) {
	for _, c := range s.Candidates {
		if c.ID == "g" && c.Capacity.Resources["nvidia.com/gpu"].NodeFreeMax >= 1 {
			return Answer{Kind: Selected, ClusterID: "g", Reason: "room"}, nil
		}
	}
	return Answer{Kind: Refused, Reason: "full"}, nil
}}

// TestSelectorsSeeWhatIsDown sees that "not now" can be told from "never": what is down for now is shown, what the project
// may never use is not, and nothing is claimed where a selector restricted the choice.
func TestSelectorsSeeWhatIsDown(t *testing.T) {
	var seen []string
	known := false
	ask := scripted{name: "z", answer: func(s *Snapshot, _ Request) (Answer, error) {
		seen, known = nil, s.Ineligible != nil
		for _, c := range s.Ineligible {
			seen = append(seen, c.ID+" "+c.Excluded)
		}
		return Answer{Kind: Abstained}, nil
	}}
	decide := func(r Request, sel ...Selector) {
		t.Helper()
		if _, err := engine(fixture(), sel...).Decide(t.Context(), "a", r); err != nil {
			t.Fatal(err)
		}
	}
	decide(Request{}, ask)
	want := []string{"s suspect: no answer", "c cordoned: upgrade", `n no provider plugin serves its type "eks" now`}
	if !known || !slices.Equal(seen, want) {
		t.Errorf("got %v, %q", known, seen)
	}
	decide(Request{Project: Project{Allowed: []string{"d", "s"}}}, ask)
	if !known || !slices.Equal(seen, want[:1]) {
		t.Errorf("got %v, %q", known, seen)
	}
	decide(Request{}, scripted{name: "a", choice: func(*Snapshot) (Choice, error) { return Choice{Clusters: []string{"d"}}, nil }}, ask)
	if known {
		t.Errorf("the choice is restricted, and still it is said what is down: %q", seen)
	}
}

func TestTwoPlacementsNeverCountOnTheLastGPU(t *testing.T) {
	e := engine(fixture(), gpuLike)
	r := Request{Version: process.Version{Spec: process.Spec{Limits: map[string]string{"nvidia.com/gpu": "1"}}}}
	var wg sync.WaitGroup
	outcomes := make([]Outcome, 40)
	for i := range outcomes {
		wg.Go(func() {
			d, err := e.Decide(context.Background(), fmt.Sprint("att", i), r)
			if err != nil {
				t.Error(err)
			}
			outcomes[i] = d.Outcome
		})
	}
	wg.Wait()
	placed := 0
	for _, o := range outcomes {
		if o == Placed {
			placed++
		}
	}
	if placed != 8 {
		t.Fatalf("8 GPUs took %d placements", placed)
	}

	t.Run("an ended attempt frees its share", func(t *testing.T) {
		for i, o := range outcomes {
			if o == Placed {
				e.o.Ledger.Apply([]event.Event{{AttemptID: fmt.Sprint("att", i), State: string(process.Failed)}})
				break
			}
		}
		if d, _ := e.Decide(t.Context(), "next", r); d.Outcome != Placed {
			t.Errorf("got %s %q", d.Outcome, d.Reason)
		}
	})
	t.Run("a dry run reserves nothing", func(t *testing.T) {
		e := engine(fixture(), gpuLike)
		dry := r
		dry.DryRun = true
		for range 20 {
			if d, _ := e.Decide(t.Context(), "", dry); d.Outcome != Placed {
				t.Fatalf("got %s %q", d.Outcome, d.Reason)
			}
		}
	})
	t.Run("what the cluster shows is not counted twice", func(t *testing.T) {
		rs := fixture()
		e := engine(rs, gpuLike)
		for i := range 4 {
			e.Decide(t.Context(), fmt.Sprint("v", i), r)
		}
		rs.clusters[1].Observed.Capacity = gpus(5) // three of the four have pods by now
		e.o.Ledger.Observed("g", map[string]bool{"v0": true, "v1": true, "v2": true})
		d, _ := e.Decide(t.Context(), "look", Request{DryRun: true, Version: r.Version})
		for _, c := range d.Candidates {
			if c.ID == "g" && (c.Capacity.Resources["nvidia.com/gpu"].Free != 4 || c.Active != 4) {
				t.Errorf("free %+v active %d, want 4 and 4", c.Capacity.Resources, c.Active)
			}
		}
	})
}

func TestRequests(t *testing.T) {
	got := Requests(process.Spec{Requests: map[string]string{"cpu": "1500m", "memory": "1Gi"}, Limits: map[string]string{"cpu": "4", "nvidia.com/gpu": "2"}})
	want := map[string]int64{"cpu": 1500, "memory": 1 << 30, "nvidia.com/gpu": 2}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: got %d, want %d", k, got[k], v)
		}
	}
}

func TestDecisionTimesAreStorable(t *testing.T) {
	d, _ := engine(fixture()).Decide(t.Context(), "att", Request{})
	if !d.At.Equal(d.At.Truncate(time.Microsecond)) || d.At.Location() != time.UTC {
		t.Errorf("time %v is not UTC in microseconds", d.At)
	}
}

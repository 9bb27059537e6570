package plugin

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
)

// An unset or unknown member is an error in every answer of SelectCluster, and never an abstention.
func TestSelectClusterAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   placement.Answer
		says   string // empty: no error
	}{
		"selected":                 {`{"selected":{"clusterId":"a","reason":"r"}}`, placement.Answer{Kind: placement.Selected, ClusterID: "a", Reason: "r"}, ""},
		"abstained":                {`{"abstained":{}}`, placement.Answer{Kind: placement.Abstained}, ""},
		"refused, wait":            {`{"refused":{"reason":"r","action":"REFUSAL_ACTION_WAIT"}}`, placement.Answer{Kind: placement.Refused, Reason: "r"}, ""},
		"refused, fail":            {`{"refused":{"reason":"r","action":"REFUSAL_ACTION_FAIL"}}`, placement.Answer{Kind: placement.Refused, Reason: "r", Fail: true}, ""},
		"unset":                    {`{}`, placement.Answer{}, "it answered neither selected, abstained nor refused"},
		"selected nothing":         {`{"selected":{"reason":"r"}}`, placement.Answer{}, "without naming a cluster"},
		"selected, no reason":      {`{"selected":{"clusterId":"a"}}`, placement.Answer{}, "or a reason"},
		"refused, unset action":    {`{"refused":{"reason":"r"}}`, placement.Answer{}, "without a known action (0)"},
		"refused, unknown action":  {`{"refused":{"reason":"r","action":7}}`, placement.Answer{}, "without a known action (7)"},
		"refused without a reason": {`{"refused":{"action":"REFUSAL_ACTION_FAIL"}}`, placement.Answer{}, "refused without a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.install("selector-x", goodSelector(map[string]method{"SelectCluster": answer(c.answer)}))
			a, err := ask(t, r.start(r.options()), "selector-x")
			if c.says == "" {
				if err != nil || a != c.want {
					t.Errorf("%+v %v", a, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("no error but %+v", a)
			}
			wants(t, err.Error(), "selector(selector-x): SelectCluster: ", c.says)
		})
	}
}

func TestSelectClustersAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   placement.Choice
		says   string
	}{
		"clusters":  {`{"clusters":{"clusterIds":["b","a"]}}`, placement.Choice{Clusters: []string{"b", "a"}}, ""},
		"none":      {`{"clusters":{}}`, placement.Choice{}, ""},
		"abstained": {`{"abstained":{"reason":"r"}}`, placement.Choice{Abstained: true, Reason: "r"}, ""},
		"unset":     {`{}`, placement.Choice{}, "neither with clusters nor abstained"},
		"twice":     {`{"clusters":{"clusterIds":["a","a"]}}`, placement.Choice{}, `holds "a" twice`},
		"empty id":  {`{"clusters":{"clusterIds":[""]}}`, placement.Choice{}, "holds an empty id"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.install("selector-x", goodSelector(map[string]method{
				"Describe":       answer(`{"name":"n","version":"1","kind":"KIND_SELECTOR","capabilities":["CAPABILITY_SELECT_CLUSTERS"]}`),
				"SelectClusters": answer(c.answer)}))
			h := r.start(r.options())
			s := selectorOf(t, h, "selector-x")
			if hooks := s.Hooks(); hooks.SelectCluster || !hooks.SelectClusters {
				t.Errorf("%+v", hooks)
			}
			choice, err := s.SelectClusters(t.Context(), snapshot(), placement.User{ID: "u", Name: "u"}, placement.Project{ID: "p", Name: "p"})
			if c.says == "" {
				if err != nil || choice.Abstained != c.want.Abstained || choice.Reason != c.want.Reason || !slices.Equal(choice.Clusters, c.want.Clusters) {
					t.Errorf("%+v %v", choice, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("no error but %+v", choice)
			}
			wants(t, err.Error(), "selector(selector-x): SelectClusters: ", c.says)
		})
	}
}

func TestConnectAnswers(t *testing.T) {
	kubeconfig := base64JSON("kind: Config")
	for name, c := range map[string]struct {
		plugin string
		answer string
		grant  *bool
		says   string // empty: no error
	}{
		"kubeconfig":             {"provider-x", `{"kubeconfig":"` + kubeconfig + `","expiresAt":"2030-01-01T00:00:00Z","replacementConfig":"` + base64JSON(`{"token":"new"}`) + `"}`, nil, ""},
		"unset":                  {"provider-x", `{}`, nil, "its answer holds no connection"},
		"empty kubeconfig":       {"provider-x", `{"kubeconfig":""}`, nil, "its kubeconfig has 0 bytes"},
		"backend":                {"provider-x", `{"backendEnvironment":{}}`, nil, "does not grant it"},
		"backend, granted":       {"provider-x", `{"backendEnvironment":{}}`, ptr(true), ""},
		"backend, its name":      {"provider-sameasbackend", `{"backendEnvironment":{}}`, nil, ""},
		"backend, taken away":    {"provider-sameasbackend", `{"backendEnvironment":{}}`, ptr(false), "does not grant it"},
		"replacement is no JSON": {"provider-x", `{"kubeconfig":"` + kubeconfig + `","replacementConfig":"` + base64JSON(`[]`) + `"}`, nil, "its replacement config does not pass the schema"},
		"replacement unknown":    {"provider-x", `{"kubeconfig":"` + kubeconfig + `","replacementConfig":"` + base64JSON(`{"nope":1}`) + `"}`, nil, "/nope"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.install(c.plugin, goodProvider(map[string]method{"Connect": answer(c.answer)}))
			o := r.options()
			o.Plugins = map[string]Config{c.plugin: {GrantBackendEnvironment: c.grant}}
			connection, err := r.start(o).Connect(t.Context(), cluster.Cluster{ID: "c", Type: "simple"})
			if c.says != "" {
				if err == nil {
					t.Fatal("no error")
				}
				wants(t, err.Error(), "provider("+c.plugin+"): Connect: ", c.says)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "backend") {
				if !connection.Backend || connection.Kubeconfig != nil {
					t.Errorf("%+v", connection)
				}
				return
			}
			if string(connection.Kubeconfig) != "kind: Config" || connection.Backend || connection.ExpiresAt.Year() != 2030 || string(connection.ReplacementConfig) != `{"token":"new"}` {
				t.Errorf("%+v", connection)
			}
		})
	}
}

// What a plugin says of itself is held against the contract at each start.
func TestIntroduction(t *testing.T) {
	describe := func(text string) behaviour { return goodSelector(map[string]method{"Describe": answer(text)}) }
	types := func(text string) behaviour {
		return goodProvider(map[string]method{"ListClusterTypes": answer(text)})
	}
	objectSchema := base64JSON(`{"type":"object"}`)
	for name, c := range map[string]struct {
		plugin string
		b      behaviour
		config string
		state  State
		says   []string
	}{
		"kind disagrees with the name": {"selector-x", goodProvider(nil), "", Broken,
			[]string{"its file name says selector, but it says of itself that it is a provider", "rename the file to begin with provider-"}},
		"kind unset":   {"selector-x", describe(`{"name":"n","version":"1"}`), "", Broken, []string{"neither a provider nor a selector (kind 0)"}},
		"kind unknown": {"selector-x", describe(`{"name":"n","version":"1","kind":9}`), "", Broken, []string{"(kind 9)"}},
		"no name":      {"selector-x", describe(`{"version":"1","kind":"KIND_SELECTOR"}`), "", Broken, []string{"no name"}},
		"docs":         {"selector-x", describe(`{"name":"n","version":"1","kind":"KIND_SELECTOR","docsUrl":"javascript:alert(1)"}`), "", Broken, []string{"no http or https address"}},
		"schema with a remote reference": {"selector-x", describe(`{"name":"n","version":"1","kind":"KIND_SELECTOR","configSchema":"` +
			base64JSON(`{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}`) + `"}`), "", Broken, []string{"the schema of its configuration"}},
		"config without a schema": {"selector-x", goodSelector(nil), `{"a":1}`, Refused, []string{"it takes no configuration, but one is given"}},
		"config against the schema": {"selector-x", describe(`{"name":"n","version":"1","kind":"KIND_SELECTOR","configSchema":"` +
			base64JSON(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`) + `"}`), `{"n":"many"}`, Refused,
			[]string{"its config is not valid: /n: Must be of type integer", "correct its config"}},
		"config refused by the plugin": {"selector-x", goodSelector(map[string]method{"Configure": answer(`{"fieldErrors":[{"path":"/n","message":"must be even"}]}`)}), "", Refused,
			[]string{"its config is not valid: /n: must be even"}},
		"no type":                   {"provider-x", types(`{}`), "", Broken, []string{"offers no cluster type"}},
		"type name":                 {"provider-x", types(`{"types":[{"name":"Bad Name"}]}`), "", Broken, []string{`the cluster type "Bad Name"`}},
		"type twice":                {"provider-x", goodProvider(map[string]method{"ListClusterTypes": typesAnswer("a", "a")}), "", Broken, []string{"offers the cluster type a twice"}},
		"registration style unset":  {"provider-x", types(`{"types":[{"name":"a","title":"A","configSchema":"` + objectSchema + `"}]}`), "", Broken, []string{"no known registration style (0)"}},
		"type without a schema":     {"provider-x", types(`{"types":[{"name":"a","title":"A","registrationStyle":"REGISTRATION_STYLE_FORM"}]}`), "", Broken, []string{"the schema of its cluster type a"}},
		"Describe is not served":    {"selector-x", behaviour{Methods: map[string]method{}}, "", Broken, []string{"it does not serve Describe"}},
		"Describe fails":            {"selector-x", goodSelector(map[string]method{"Describe": {Code: int(codes.Internal), Message: "boom"}}), "", Deactivated, []string{"Describe: Internal: boom"}},
		"ends while it is asked":    {"selector-x", goodSelector(map[string]method{"Describe": {Always: true, Panic: "nil map"}}), "", Deactivated, []string{"the process ended during Describe: exit code 3", "panic: nil map"}},
		"unknown capability passes": {"selector-x", describe(`{"name":"n","version":"1","kind":"KIND_SELECTOR","capabilities":["CAPABILITY_SELECT_CLUSTER",77,0]}`), "", Running, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.install(c.plugin, c.b)
			o := r.options()
			if c.config != "" {
				o.Plugins = map[string]Config{c.plugin: {Config: []byte(c.config)}}
			}
			h := r.start(o)
			s := untilState(t, h, c.plugin, c.state)
			wants(t, s.LastError, c.says...)
		})
	}
}

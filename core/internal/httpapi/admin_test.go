package httpapi_test

import (
	"strings"
	"testing"
	"time"
)

// An ordinary user sees the projects of which it is a member, and nothing that is for admins.
func TestOrdinaryUser(t *testing.T) {
	w := newWorld(t)
	must[object](w, w.do("POST", "/api/v1/users", object{"name": "eve"}), 201)
	made := must[struct{ Key string }](w, w.do("POST", "/api/v1/api-keys", object{"name": "for eve", "user": "eve"}), 201)
	must[object](w, w.do("POST", "/api/v1/projects", object{"name": "hers", "members": []string{"eve"}}), 201)
	v := must[version](w, w.do("POST", submit, submission()), 201)
	eve := []string{"key", made.Key}

	if me := must[struct{ Name string }](w, w.do("GET", "/api/v1/whoami", nil, eve...), 200); me.Name != "eve" {
		t.Errorf("got %+v", me)
	}
	if list := must[struct{ Items []struct{ Name string } }](w, w.do("GET", "/api/v1/projects", nil, eve...), 200); len(list.Items) != 1 || list.Items[0].Name != "hers" {
		t.Errorf("got %+v", list)
	}
	must[version](w, w.do("POST", "/api/v1/projects/hers/processes", submission(), eve...), 201)
	for path, status := range map[string]int{
		"GET /api/v1/versions/" + v.ID:              404,
		"GET /api/v1/versions/" + v.ID + "/explain": 404,
		"GET /api/v1/versions/" + v.ID + "/logs":    404,
		"GET /api/v1/versions/" + v.ID + "/events":  404,
		"POST /api/v1/versions/" + v.ID + "/cancel": 404,
		"GET /api/v1/projects/default":              404,
		"GET /api/v1/projects/default/clusters":     404,
		"GET /api/v1/events?project=default":        404,
		"GET /api/v1/processes?project=default":     404,
		"GET /api/v1/versions":                      400,
		"GET /api/v1/clusters":                      403,
		"GET /api/v1/plugins":                       403,
		"GET /api/v1/users":                         403,
		"GET /api/v1/settings/default-cluster":      200,
	} {
		method, path, _ := strings.Cut(path, " ")
		if a := w.do(method, path, nil, eve...); a.status != status {
			t.Errorf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
		}
	}
	if a := w.do("POST", "/api/v1/api-keys", object{"name": "x", "user": "admin"}, eve...); a.status != 403 {
		t.Errorf("eve made a key for the admin: %d", a.status)
	}
	keys := must[struct{ Items []struct{ ID, Prefix string } }](w, w.do("GET", "/api/v1/api-keys", nil, eve...), 200)
	if len(keys.Items) != 1 {
		t.Fatalf("eve sees %d keys", len(keys.Items))
	}
	if a := w.do("DELETE", "/api/v1/api-keys/"+keys.Items[0].Prefix, nil); a.status != 204 {
		t.Fatal(a.status)
	}
	if a := w.do("GET", "/api/v1/whoami", nil, eve...); a.status != 401 {
		t.Errorf("a revoked key: %d", a.status)
	}
}

func TestExpiredKey(t *testing.T) {
	w := newWorld(t)
	a := w.do("POST", "/api/v1/api-keys", object{"name": "x", "expires_at": time.Now().Add(-time.Second)})
	if a.status != 422 || a.problem().Errors[0].Field != "expires_at" {
		t.Errorf("%d %s", a.status, a.body)
	}
	key := must[struct{ Key string }](w, w.do("POST", "/api/v1/api-keys", object{"name": "x", "expires_at": time.Now().Add(50 * time.Millisecond)}), 201).Key
	deadline := time.Now().Add(5 * time.Second)
	for w.do("GET", "/api/v1/whoami", nil, "key", key).status != 401 {
		if time.Now().After(deadline) {
			t.Fatal("the key does not expire")
		}
	}
}

func TestClusters(t *testing.T) {
	w := newWorld(t)
	const path = "/api/v1/clusters"
	bad := w.do("POST", path, object{"name": "c", "type": "fake", "provider_config": object{}})
	if p := bad.problem(); bad.status != 422 || p.Errors[0].Field != "provider_config.token" {
		t.Fatalf("%d %s", bad.status, bad.body)
	}
	if a := w.do("POST", path, object{"name": "c", "type": "nobody"}); a.status != 422 || a.problem().Code != "unknown_cluster_type" {
		t.Errorf("%d %s", a.status, a.body)
	}
	made := w.do("POST", path, object{"name": "c", "type": "fake", "provider_config": object{"token": "geheim"}, "labels": object{"zone": "a"}, "max_runtime_seconds": 60})
	must[object](w, made, 201)
	if strings.Contains(string(made.body), "geheim") || !strings.Contains(string(made.body), `"has_provider_config":true`) || !strings.Contains(string(made.body), "a warning") {
		t.Errorf("got %s", made.body)
	}
	tag := made.header.Get("ETag")
	if a := w.do("POST", path, object{"name": "c", "type": "fake", "provider_config": object{"token": "t"}}); a.status != 409 || a.problem().Code != "name_in_use" {
		t.Errorf("%d %s", a.status, a.body)
	}
	changed := w.do("PATCH", path+"/c", object{"sort_order": 7}, "If-Match", tag)
	c := must[struct {
		SortOrder int               `json:"sort_order"`
		Labels    map[string]string `json:"labels"`
		Max       int               `json:"max_runtime_seconds"`
		Has       bool              `json:"has_provider_config"`
		Active    bool
	}](w, changed, 200)
	if c.SortOrder != 7 || c.Labels["zone"] != "a" || c.Max != 60 || !c.Has || !c.Active {
		t.Errorf("only what is sent may change: %+v", c)
	}
	if a := w.do("PATCH", path+"/c", object{"sort_order": 8}, "If-Match", tag); a.status != 412 || a.problem().Code != "stale" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("PATCH", path+"/c", object{"type": "same-as-backend"}); a.status != 422 || a.problem().Errors[0].Field != "provider_config" {
		t.Errorf("a new type without a config: %d %s", a.status, a.body)
	}
	if a := w.do("PATCH", path+"/c", object{"type": "fake"}); a.status != 200 {
		t.Errorf("the same type keeps its config: %d %s", a.status, a.body)
	}
	if a := w.do("PATCH", path+"/c", object{"namespace": "No_Name"}); a.status != 422 || a.problem().Errors[0].Field != "namespace" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("PATCH", path+"/c", object{}); a.status != 422 {
		t.Errorf("an empty patch: %d %s", a.status, a.body)
	}
	if a := w.do("PUT", "/api/v1/settings/default-cluster", object{"cluster": "c"}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("DELETE", path+"/c", nil); a.status != 409 || a.problem().Code != "cluster_in_use" {
		t.Errorf("the default cluster was removed: %d %s", a.status, a.body)
	}
	if a := w.do("PUT", "/api/v1/settings/default-cluster", object{"cluster": ""}); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("DELETE", path+"/c", nil, "If-Match", `"1"`); a.status != 412 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("DELETE", path+"/c", nil); a.status != 204 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("GET", path+"/c", nil); a.status != 404 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if strings.Contains(w.log.String(), "geheim") {
		t.Error("the log holds the secret")
	}
}

func TestProjects(t *testing.T) {
	w := newWorld(t)
	must[object](w, w.do("POST", "/api/v1/projects", object{"name": "p", "home_cluster": "Default Cluster", "allowed_clusters": []string{"Default Cluster"}}), 201)
	p := must[struct {
		Home    string    `json:"home_cluster"`
		Allowed *[]string `json:"allowed_clusters"`
	}](w, w.do("PATCH", "/api/v1/projects/p", object{"home_cluster": "", "allow_all_clusters": true}), 200)
	if p.Home != "" || p.Allowed != nil {
		t.Errorf("got %+v", p)
	}
	if a := w.do("PATCH", "/api/v1/projects/p", object{"home_cluster": "moon"}); a.status != 422 || a.problem().Code != "unknown_cluster" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("PATCH", "/api/v1/projects/p", object{"members": []string{"nobody"}}); a.status != 422 || a.problem().Errors[0].Field != "members[0]" {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("POST", "/api/v1/projects", object{"name": "p"}); a.status != 409 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := w.do("POST", "/api/v1/projects", object{"name": "a/b"}); a.status != 422 || a.problem().Errors[0].Field != "name" {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestPublic(t *testing.T) {
	w := newWorld(t)
	none := []string{"Authorization", ""}
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": `"ready"`, "/metrics": "nagelfluh_http_request_seconds", "/openapi.yaml": "openapi: 3.0.3", "/docs": "<h1>Nagelfluh API</h1>",
	} {
		a := w.do("GET", path, nil, none...)
		if a.status != 200 || !strings.Contains(string(a.body), want) && path != "/metrics" {
			t.Errorf("%s: %d %.200s", path, a.status, a.body)
		}
		if a := w.do("HEAD", path, nil, none...); a.status != 200 {
			t.Errorf("HEAD %s: %d", path, a.status)
		}
		if path == "/readyz" && strings.Contains(string(a.body), "provider-fake") {
			t.Error("readiness tells everybody the details")
		}
	}
	if a := w.do("GET", "/readyz", nil); !strings.Contains(string(a.body), "provider-fake") || !strings.Contains(string(a.body), "Default Cluster") {
		t.Errorf("an admin sees %s", a.body)
	}
	if a := w.do("GET", "/metrics", nil, none...); !strings.Contains(string(a.body), `route="/readyz"`) {
		t.Errorf("%.300s", a.body)
	}
	w.api.Drain()
	if a := w.do("GET", "/readyz", nil); a.status != 503 || !strings.Contains(string(a.body), "draining") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

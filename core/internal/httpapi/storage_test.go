package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

// storageTester fails for the bucket "broken".
type storageTester struct{}

func (storageTester) Test(_ context.Context, b storage.Backend) storage.Report {
	if b.Bucket == "broken" || b.Credentials.SecretAccessKey == "" {
		return storage.Report{Class: storage.Bucket, Step: "put", Message: "there is no such bucket"}
	}
	return storage.Report{OK: true, Class: storage.OK, Message: "fine"}
}

// storageSelector answers what it is told to.
type storageSelector struct {
	ignore bool
	answer storage.Answer
	err    error
	asked  int
	seen   []storage.Offer
}

func (s *storageSelector) Name() string       { return "selector-storage" }
func (s *storageSelector) IgnoreErrors() bool { return s.ignore }
func (s *storageSelector) SelectStorage(_ context.Context, u placement.User, p placement.Project, offered []storage.Offer) (storage.Answer, error) {
	s.asked++
	s.seen = offered
	if u.ID == "" || p.ID == "" || p.Name == "" {
		return storage.Answer{}, errors.New("it was not told who asks for what")
	}
	return s.answer, s.err
}

func lake(name string) object {
	return object{"name": name, "endpoint": "https://s3.example.org/", "bucket": "lake", "prefix": "/a/b/", "path_style": true,
		"credentials": object{"access_key_id": "SECRET-MARK-id", "secret_access_key": "SECRET-MARK-key"}}
}

type storageAnswer struct {
	ID, Name, Endpoint, Region, Bucket, Prefix string
	HasCredentials                             bool `json:"has_credentials"`
	Default                                    bool
	Projects                                   int
	Warnings                                   []string
}

func TestStorageBackends(t *testing.T) {
	w := newWorld(t)
	const path = "/api/v1/storage-backends"
	a := w.do("POST", path, lake("one"))
	made := must[storageAnswer](w, a, 201)
	if made.Endpoint != "https://s3.example.org" || made.Prefix != "a/b" || made.Region != "us-east-1" || !made.HasCredentials || a.header.Get("ETag") != `"1"` {
		t.Errorf("got %+v, ETag %s", made, a.header.Get("ETag"))
	}
	var shown strings.Builder
	show := func(a answer) answer { shown.Write(a.body); return a }
	show(a)
	refused := func(method, at string, body any, status int, code string, headers ...string) answer {
		t.Helper()
		a := show(w.do(method, at, body, headers...))
		if a.status != status || a.problem().Code != code {
			t.Errorf("%s %s: %d %s, want %d %s", method, at, a.status, a.body, status, code)
		}
		return a
	}
	refused("POST", path, lake("one"), 409, "name_in_use")
	broken := lake("two")
	broken["bucket"] = "broken"
	if p := refused("POST", path, broken, 422, "connection_test_failed").problem(); p.Details["report"] == nil {
		t.Errorf("no report: %+v", p)
	}
	if b := must[storageAnswer](w, w.do("POST", path+"?connection_test=skip", broken), 201); len(b.Warnings) != 1 {
		t.Errorf("warnings %v", b.Warnings)
	}
	for field, value := range map[string]any{"endpoint": "ftp://x", "bucket": "a b", "prefix": "a//b", "region": "a b", "credentials": object{"access_key_id": "x", "secret_access_key": "SECRET-MARK with space"}} {
		body := lake("three")
		body[field] = value
		refused("POST", path, body, 422, "invalid")
	}
	for _, endpoint := range []string{"https://u:SECRET-MARK@s3.example.org", "https://s3.example.org/x", "https://s3.example.org?x", "https://", "s3.example.org"} {
		body := lake("three")
		body["endpoint"] = endpoint
		refused("POST", path, body, 422, "invalid")
	}

	// Credentials go to no other endpoint by themselves; bucket and prefix stay while projects are there.
	refused("PATCH", path+"/one", object{"endpoint": "https://other.example.org"}, 422, "invalid")
	refused("PATCH", path+"/one", object{"name": "uno"}, 412, "stale", "If-Match", `"7"`)
	must[object](w, w.do("POST", "/api/v1/projects", object{"name": "p", "storage": "one"}), 201)
	refused("PATCH", path+"/one", object{"bucket": "pond"}, 409, "storage_in_use")
	if p := refused("DELETE", path+"/one", nil, 409, "storage_in_use").problem(); p.Details["projects"] != float64(1) {
		t.Errorf("details %v", p.Details)
	}
	must[storageAnswer](w, w.do("PATCH", path+"/one", object{"name": "uno", "region": "eu-1",
		"credentials": object{"access_key_id": "SECRET-MARK-2", "secret_access_key": "SECRET-MARK-3"}}), 200)
	if b := must[storageAnswer](w, show(w.do("GET", path+"/uno", nil)), 200); b.Region != "eu-1" || b.Projects != 1 || b.Prefix != "a/b" {
		t.Errorf("got %+v", b)
	}
	must[object](w, w.do("PUT", "/api/v1/settings/default-storage", object{"storage": "two"}), 200)
	refused("DELETE", path+"/two", nil, 409, "storage_in_use")
	refused("PUT", "/api/v1/settings/default-storage", object{"storage": "none such"}, 422, "unknown_storage")
	must[object](w, w.do("PUT", "/api/v1/settings/default-storage", object{"storage": ""}), 200)
	if a := w.do("DELETE", path+"/two", nil); a.status != 204 {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	must[object](w, w.do("PATCH", "/api/v1/projects/p", object{"storage": ""}), 200)
	refused("PATCH", "/api/v1/projects/p", object{"storage": "none such"}, 422, "unknown_storage")

	if r := must[object](w, show(w.do("POST", path+"/uno/test", object{})), 200); r["ok"] != true {
		t.Errorf("test: %v", r)
	}
	if r := must[object](w, show(w.do("POST", path+"/uno/test", object{"bucket": "broken"})), 200); r["class"] != "bucket" {
		t.Errorf("test: %v", r)
	}
	fresh := lake("")
	delete(fresh, "name")
	must[object](w, show(w.do("POST", path+"/test", fresh)), 200)
	show(w.do("GET", path, nil))
	if text := shown.String() + w.log.String(); strings.Contains(text, "SECRET-MARK") {
		t.Error("a secret is shown")
	}
	must[object](w, w.do("POST", "/api/v1/users", object{"name": "eve"}), 201)
	key := must[struct{ Key string }](w, w.do("POST", "/api/v1/api-keys", object{"name": "k", "user": "eve"}), 201)
	for _, at := range []string{"GET " + path, "GET " + path + "/uno", "DELETE " + path + "/uno", "GET /api/v1/settings/default-storage"} {
		method, at, _ := strings.Cut(at, " ")
		refused(method, at, nil, 403, "forbidden", "key", key.Key)
	}
}

// A new project's storage: what is named, else the first selector with an opinion, else the default, else none. An error
// is no abstention.
func TestStorageOfANewProject(t *testing.T) {
	w := newWorld(t)
	one := must[storageAnswer](w, w.do("POST", "/api/v1/storage-backends", lake("one")), 201)
	two := must[storageAnswer](w, w.do("POST", "/api/v1/storage-backends", lake("two")), 201)
	n := 0
	create := func(body object) (string, answer) {
		t.Helper()
		n++
		body["name"] = fmt.Sprint("p", n)
		a := w.do("POST", "/api/v1/projects", body)
		var p struct{ Storage string }
		if a.status == 201 {
			p = must[struct{ Storage string }](w, a, 201)
		}
		return p.Storage, a
	}
	want := func(what, want string, body object) {
		t.Helper()
		if got, a := create(body); got != want || a.status != 201 {
			t.Errorf("%s: got %q, want %q: %s", what, got, want, a.body)
		}
	}
	want("nothing is said", "", object{})
	must[object](w, w.do("PUT", "/api/v1/settings/default-storage", object{"storage": "one"}), 200)
	want("the default", one.ID, object{})

	first, second := &storageSelector{answer: storage.Answer{Abstained: true}}, &storageSelector{answer: storage.Answer{BackendID: two.ID, Reason: "it is near"}}
	w.selectors = []storage.Selector{first, second}
	want("the second selector", two.ID, object{})
	if len(first.seen) != 2 || !first.seen[0].Default || first.seen[1].Default || first.seen[0].Type != "s3" {
		t.Errorf("offered %+v", first.seen)
	}
	asked := first.asked
	want("what is named", one.ID, object{"storage": "one"})
	want("none", "", object{"no_storage": true})
	if first.asked != asked {
		t.Error("a selector was asked for what was said")
	}
	if _, a := create(object{"no_storage": true, "storage": "one"}); a.status != 422 {
		t.Errorf("both: %d", a.status)
	}

	first.err = errors.New("it crashed")
	if _, a := create(object{}); a.status != 503 || a.problem().Code != "storage_undecided" {
		t.Errorf("an error: %d %s", a.status, a.body)
	}
	first.ignore = true
	want("an ignored error", two.ID, object{})
	first.err, first.answer, first.ignore = nil, storage.Answer{BackendID: "made up", Reason: "x"}, false
	if _, a := create(object{}); a.status != 503 {
		t.Errorf("an unknown backend: %d %s", a.status, a.body)
	}
}

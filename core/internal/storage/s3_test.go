package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
	"github.com/nagelfluh/nagelfluh/rig/s3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	accessKey = "AKIDSECRETMARK"
	secretKey = "SECRET-MARK-secret"
)

func backend(endpoint string) storage.Backend {
	return storage.Backend{
		Name: "lake", Type: storage.S3, Endpoint: endpoint, Region: "us-east-1", Bucket: "lake", Prefix: "a/b", PathStyle: true,
		Credentials: storage.Credentials{AccessKeyID: accessKey, SecretAccessKey: secretKey},
	}
}

func test(t *testing.T, b storage.Backend, limit time.Duration) storage.Report {
	t.Helper()
	r := storage.S3Tester{Dial: kube.Dialer(nil).DialContext, Limit: limit}.Test(t.Context(), b)
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, mark := range []string{accessKey, secretKey} {
		if strings.Contains(string(raw), mark) {
			t.Errorf("the report shows a secret: %s", raw)
		}
	}
	if r.OK != (r.Class == storage.OK) || r.Message == "" || r.OK != (r.Step == "") {
		t.Errorf("report %s", raw)
	}
	return r
}

// A real server: what works, and what a wrong setting comes to. Nothing is left behind.
func TestS3ServerOfItsOwn(t *testing.T) {
	server := s3.Start(t, accessKey, secretKey, "lake")
	for name, c := range map[string]struct {
		edit func(*storage.Backend)
		want storage.Class
	}{
		"right":             {func(*storage.Backend) {}, storage.OK},
		"the whole bucket":  {func(b *storage.Backend) { b.Prefix = "" }, storage.OK},
		"wrong secret":      {func(b *storage.Backend) { b.Credentials.SecretAccessKey = "another" }, storage.Credential},
		"unknown key":       {func(b *storage.Backend) { b.Credentials.AccessKeyID = "another" }, storage.Credential},
		"no such bucket":    {func(b *storage.Backend) { b.Bucket = "pond" }, storage.Bucket},
		"another region":    {func(b *storage.Backend) { b.Region = "eu-central-1" }, storage.Region},
		"TLS where is none": {func(b *storage.Backend) { b.Endpoint = strings.Replace(b.Endpoint, "http:", "https:", 1) }, storage.TLS},
	} {
		t.Run(name, func(t *testing.T) {
			b := backend(server.Endpoint)
			c.edit(&b)
			if r := test(t, b, 0); r.Class != c.want {
				t.Errorf("got %+v, want class %s", r, c.want)
			}
		})
	}
	if keys, err := server.Objects("lake"); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %v, %v", keys, err)
	}
	server.Stop()
	if r := test(t, backend(server.Endpoint), 0); r.Class != storage.Refused {
		t.Errorf("a server that is away: %+v", r)
	}
}

// What a right server does not do.
func TestS3Classes(t *testing.T) {
	fault := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(status)
			// A careless server repeats what it was sent.
			fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>%s %s</Message></Error>`, code, accessKey, r.Header.Get("Authorization"))
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  storage.Class
		step  string
	}{
		"may not":         {fault(403, "AccessDenied"), storage.Permissions, "put"},
		"token has ended": {fault(400, "ExpiredToken"), storage.Credential, "put"},
		"clock":           {fault(403, "RequestTimeTooSkewed"), storage.Clock, "put"},
		"another region":  {fault(301, "PermanentRedirect"), storage.Region, "put"},
		"broken":          {fault(500, "InternalError"), storage.Server, "put"},
		"unknown code":    {fault(403, "SomethingElse"), storage.Permissions, "put"},
		"echo as code":    {fault(403, accessKey+"/x"), storage.NotS3, "put"},
		"a web page":      {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>hello</html>", http.StatusNotFound) }, storage.NotS3, "put"},
		"redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusTemporaryRedirect)
		}, storage.Region, "put"}, // not followed: that would be denied
		"silence": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the client goes
			<-r.Context().Done()
		}, storage.Timeout, "put"},
		"another content": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				fmt.Fprint(w, "something else")
			}
		}, storage.Content, "get"},
		"may not read": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				fault(403, "AccessDenied")(w, r)
			}
		}, storage.Permissions, "get"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.serve)
			defer s.Close()
			r := test(t, backend(s.URL), 2*time.Second)
			if r.Class != c.want || r.Step != c.step {
				t.Errorf("got %+v, want class %s in step %s", r, c.want, c.step)
			}
		})
	}
	for name, c := range map[string]struct {
		endpoint string
		want     storage.Class
	}{
		"metadata of a cloud": {"http://169.254.169.254", storage.Denied},
		"no such name":        {"http://storage.invalid", storage.DNS},
	} {
		t.Run(name, func(t *testing.T) {
			if r := test(t, backend(c.endpoint), 5*time.Second); r.Class != c.want {
				t.Errorf("got %+v, want class %s", r, c.want)
			}
		})
	}
	t.Run("the caller has gone", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		dial := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("not asked") }
		if r := (storage.S3Tester{Dial: dial}).Test(ctx, backend("http://127.0.0.1:1")); r.OK {
			t.Error(r)
		}
	})
}

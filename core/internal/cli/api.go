package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/nagelfluh/nagelfluh/core/api/client"
)

// apiError is an answer that is an error.
type apiError struct {
	status  int
	problem *client.Problem // nil: the answer was not of this API
	body    string
}

func (e *apiError) Error() string {
	if e.problem == nil {
		return fmt.Sprintf("the server answered %d %s: %.200s", e.status, http.StatusText(e.status), e.body)
	}
	text := e.problem.Detail
	if text == "" {
		text = e.problem.Title
	}
	return fmt.Sprintf("%s (%s)", text, e.problem.Code)
}

// describe writes an error for people, with a line a field.
func describe(err error) string {
	text := err.Error()
	var e *apiError
	if !errors.As(err, &e) || e.problem == nil {
		return text
	}
	if len(e.problem.Errors) > 1 {
		for _, f := range e.problem.Errors {
			text += fmt.Sprintf("\n  %s: %s", f.Field, f.Message)
		}
	}
	if e.status >= 500 {
		text += "\n  request " + e.problem.RequestID
	}
	return text
}

func isCode(err error, code string) bool {
	var e *apiError
	return errors.As(err, &e) && e.problem != nil && e.problem.Code == code
}

// connect returns the generated client, set up with the server's address and the key.
func (c *command) connect() (*client.Client, error) {
	server := strings.TrimRight(cmp.Or(c.server, c.getenv("NAGELFLUH_SERVER"), "http://127.0.0.1:8080"), "/")
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, usage("server %q is no http or https URL", server)
	}
	key := c.getenv("NAGELFLUH_API_KEY")
	if c.keyFile != "" {
		raw, err := readFile(c.keyFile, c.In)
		if err != nil {
			return nil, fmt.Errorf("read the API key: %w", err)
		}
		key = string(raw)
	}
	key = strings.TrimSpace(key)
	if key == "" {
		return nil, usage("no API key: set NAGELFLUH_API_KEY or give --api-key-file; the first admin's is in admin.key in the server's data directory")
	}
	return client.NewClient(server+"/api/v1", client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("User-Agent", "nagelfluh/"+Version)
		return nil
	}))
}

func (c *command) projectRef() string {
	return cmp.Or(c.project, c.getenv("NAGELFLUH_PROJECT"), "default")
}

// call sends a request and decodes a 2xx answer into T.
func call[T any](resp *http.Response, err error) (out T, _ error) {
	if err != nil {
		return out, unreachable(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, unreachable(err)
	}
	if resp.StatusCode/100 != 2 {
		return out, failure(resp, raw)
	}
	if len(raw) > 0 && resp.StatusCode != http.StatusNoContent {
		if err := json.Unmarshal(raw, &out); err != nil {
			return out, fmt.Errorf("the server's answer cannot be read: %w", err)
		}
	}
	return out, nil
}

func failure(resp *http.Response, raw []byte) error {
	e := &apiError{status: resp.StatusCode, body: strings.TrimSpace(string(raw))}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		var p client.Problem
		if json.Unmarshal(raw, &p) == nil && p.Code != "" {
			e.problem = &p
		}
	}
	return e
}

func unreachable(err error) error {
	var u *url.Error
	if errors.As(err, &u) && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the server cannot be reached: %w", u.Err)
	}
	return err
}

// version finds a version by its id, or the latest one of the process of that name.
func (c *command) version(ctx context.Context, api *client.Client, ref string) (client.Version, error) {
	v, err := call[client.Version](api.GetVersion(ctx, ref))
	if err == nil || !isCode(err, "not_found") && !isCode(err, "bad_parameter") {
		return v, err
	}
	list, err := call[client.VersionList](api.ListVersions(ctx, &client.ListVersionsParams{Project: optional(c.projectRef()), Process: &ref, Limit: optional(int32(1))}))
	if isCode(err, "not_found") || err == nil && len(list.Items) == 0 {
		return v, fmt.Errorf("there is no version and no process %q in project %q", ref, c.projectRef())
	}
	if err != nil {
		return v, err
	}
	return list.Items[0], nil
}

// optional returns what an optional parameter wants: nil for the zero value.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

package httpapi

import (
	"bytes"
	"context"
	_ "embed"
	"html"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/api"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
)

// public are the routes that want no key. Load balancers ask with HEAD as well.
func (s *Server) public() {
	get := func(path string, h echo.HandlerFunc) {
		s.echo.Match([]string{http.MethodGet, http.MethodHead}, path, h)
	}
	get("/healthz", func(c echo.Context) error { return c.String(http.StatusOK, "ok\n") })
	get("/readyz", s.ready)
	get("/metrics", echo.WrapHandler(s.o.Metrics.Handler()))
	get("/openapi.yaml", func(c echo.Context) error { return c.Blob(http.StatusOK, "application/yaml", api.OpenAPI) })
	page := s.docsPage()
	get("/docs", func(c echo.Context) error {
		c.Response().Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
		return c.HTMLBlob(http.StatusOK, page)
	})
}

// Check is one line of the readiness detail.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Readiness is what /readyz answers. Everybody sees the status and the role; admins, with their key, the checks. Only the
// database and draining make the server not ready: a plugin or a cluster that is down is shown, and the rest works.
type Readiness struct {
	Status  string  `json:"status"`           // ready, draining or unavailable
	Role    string  `json:"role"`             // leader or follower
	Leader  string  `json:"leader,omitempty"` // for admins: the address of the server that leads, when it is another one
	Version string  `json:"version,omitempty"`
	Checks  []Check `json:"checks,omitempty"`
}

const readyLimit = 3 * time.Second

func (s *Server) ready(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), readyLimit)
	defer cancel()
	out := Readiness{Status: "ready", Role: "follower"}
	leader, _ := s.o.Leaders.View()
	if leader.Self {
		out.Role = "leader"
	}
	db := s.o.Store.Ping(ctx)
	switch {
	case s.isDraining():
		out.Status = "draining"
	case db != nil:
		out.Status = "unavailable"
	}
	if db == nil {
		if p, err := s.principal(c.Request()); err == nil && p.Admin {
			out.Version, out.Leader = s.o.Version, leader.Address
			out.Checks = append([]Check{{Name: "database", OK: true}, leaderCheck(leader)}, append(s.pluginChecks(), s.clusterChecks(ctx)...)...)
		}
	}
	status := http.StatusOK
	if out.Status != "ready" {
		status = http.StatusServiceUnavailable
	}
	return c.JSON(status, out)
}

func (s *Server) isDraining() bool { return s.draining.Err() != nil }

func (s *Server) pluginChecks() (out []Check) {
	for _, p := range s.o.Plugins.List() {
		c := Check{Name: "plugin " + p.Name, OK: p.State == plugin.Running, Detail: string(p.State)}
		if p.LastError != "" && !c.OK {
			c.Detail += ": " + p.LastError
		}
		for _, shadow := range p.Shadowed {
			c.Detail += "; type " + shadow.Type + " is shadowed by " + shadow.By
		}
		out = append(out, c)
	}
	return out
}

func (s *Server) clusterChecks(ctx context.Context) (out []Check) {
	all, err := s.o.Store.Clusters(ctx)
	if err != nil {
		return []Check{{Name: "clusters", Detail: "cannot be read"}}
	}
	served := s.o.Plugins.ServedTypes()
	for _, c := range all {
		check := Check{Name: "cluster " + c.Name, OK: c.Observed.Health == "ready", Detail: string(toObserved(c.Observed).Health)}
		if c.Observed.Message != "" {
			check.Detail += ": " + c.Observed.Message
		}
		if served[c.Type] == "" {
			check.OK, check.Detail = false, "no provider plugin serves its type "+c.Type+" now"
		}
		out = append(out, check)
	}
	return out
}

//go:embed docs.css
var docsStyle string

// docsPage lists the routes of the contract; it needs no script and nothing from elsewhere.
func (s *Server) docsPage() []byte {
	var b bytes.Buffer
	e := html.EscapeString
	b.WriteString("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Nagelfluh API</title><style>" + docsStyle + "</style><main><h1>Nagelfluh API</h1>")
	b.WriteString("<pre class=\"intro\">" + e(s.doc.Info.Description) + "</pre><p>All of it, with every schema: <a href=\"/openapi.yaml\">openapi.yaml</a></p>")
	for _, tag := range s.doc.Tags {
		b.WriteString("<h2>" + e(tag.Name) + "</h2><p>" + e(tag.Description) + "</p>")
		for _, path := range s.doc.Paths.InMatchingOrder() {
			item := s.doc.Paths.Value(path)
			for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
				op := item.GetOperation(method)
				if op == nil || !slices.Contains(op.Tags, tag.Name) {
					continue
				}
				b.WriteString("<details><summary><code><b>" + method + "</b> " + e(BasePath+path) + "</code> " + e(op.Summary) + "</summary>")
				if op.Description != "" {
					b.WriteString("<pre>" + e(strings.TrimSpace(op.Description)) + "</pre>")
				}
				b.WriteString("<ul>")
				for _, p := range append(slices.Clone(item.Parameters), op.Parameters...) {
					b.WriteString("<li><code>" + e(p.Value.Name) + "</code> (" + e(p.Value.In) + ") " + e(p.Value.Description) + "</li>")
				}
				b.WriteString("</ul></details>")
			}
		}
	}
	b.WriteString("</main></html>")
	return b.Bytes()
}

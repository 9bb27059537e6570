// Package httpapi serves the REST contract of core/api/openapi.yaml.
//
// A request passes, in this order: an id, the access log and metrics, recovery from panics, the size cap, the API key, the
// contract's own validation, and then a handler that decodes, asks a service, and encodes. Every error becomes
// problem+json in one place, problem.go. Streams are plain handlers in stream.go and logs.go.
package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/hashicorp/go-hclog"
	"github.com/labstack/echo/v4"

	"github.com/nagelfluh/nagelfluh/core/api"
	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/replica"
	"github.com/nagelfluh/nagelfluh/core/internal/storage"
)

// BasePath is where the contract's routes live.
const BasePath = "/api/v1"

// Limits of request bodies in bytes.
const (
	MaxBody     = 1 << 20
	MaxBulkBody = 16 << 20
)

// Options are what the server stands on. All are required unless said otherwise.
type Options struct {
	Store     Store
	Auth      *auth.Service
	Processes *process.Service
	Clusters  *cluster.Service
	Storage   *storage.Service
	Placement Placement
	Plugins   Plugins
	Logs      Logs
	// Leaders tells which of several servers leads; nil: there is but this one.
	Leaders replica.Leaders
	// Transport leads to the other servers; required with Leaders.
	Transport http.RoundTripper
	// Self is this server's id among them.
	Self string
	// Metrics is told of every request and served at /metrics.
	Metrics Metrics
	Logger  hclog.Logger
	// Version is the build's, for the readiness detail.
	Version string
	// Seen is told of every event in its order, once; it must be quick. Nil: nobody.
	Seen func(event.Event)
	// Heartbeat is the longest silence of a stream. Zero: 10 s.
	Heartbeat time.Duration
	// WriteLimit bounds one write to the client of a stream that has stopped reading. Zero: 30 s.
	WriteLimit time.Duration
	// Recheck is how long an open stream goes on before it looks anew whether its caller may still see it. Zero: 5 s.
	Recheck time.Duration
}

// Metrics is told of requests and serves what was counted.
type Metrics interface {
	Request(method, route string, status int, took time.Duration)
	Handler() http.Handler
}

// Server is the HTTP side of the core. It is safe for concurrent use.
type Server struct {
	o     Options
	log   hclog.Logger
	echo  *echo.Echo
	doc   *openapi3.T
	feed  *feed
	names *names

	draining context.Context // ends with Drain
	drain    context.CancelFunc
}

// New builds the server. Run must be called for its event streams to live.
func New(o Options) (*Server, error) {
	if o.Recheck == 0 {
		o.Recheck = 5 * time.Second
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 10 * time.Second
	}
	if o.WriteLimit == 0 {
		o.WriteLimit = 30 * time.Second
	}
	if o.Leaders == nil {
		o.Leaders = replica.Alone{}
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("read the REST contract: %w", err)
	}
	names := newNames(o.Store)
	s := &Server{
		o: o, log: o.Logger.Named("http"), echo: echo.New(), doc: doc, names: names,
		feed: newFeed(o.Store, names, o.Seen, o.Logger.Named("events")),
	}
	s.draining, s.drain = context.WithCancel(context.Background())
	s.echo.HideBanner, s.echo.HidePort = true, true
	s.echo.HTTPErrorHandler = s.fail
	s.echo.Pre(s.identify, s.observe, s.recovered)
	s.public()

	s.echo.Use(s.guarded)
	v1 := s.echo.Group(BasePath)
	gen.RegisterHandlers(v1, gen.NewStrictHandler(&handlers{Server: s}, nil))
	v1.GET("/events", s.streamEvents)
	v1.GET("/versions/:version/events", s.streamVersionEvents)
	v1.GET("/versions/:version/logs", s.streamLogs)
	return s, nil
}

// Run feeds the event streams until ctx ends.
func (s *Server) Run(ctx context.Context) { s.feed.run(ctx) }

// Drain ends all streams and makes the server say that it is not ready. Requests under way go on. Calling it twice is
// safe.
func (s *Server) Drain() { s.drain() }

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.echo.ServeHTTP(w, r) }

// handlers implements the generated interface; it is a type of its own so that the server's methods stay few.
type handlers struct{ *Server }

var _ gen.StrictServerInterface = (*handlers)(nil)

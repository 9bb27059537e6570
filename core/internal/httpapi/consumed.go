package httpapi

import (
	"context"
	"iter"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/logs"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// Store is what the handlers read, and write where no service stands between. *store.DB fulfils it.
type Store interface {
	Ping(ctx context.Context) error

	Projects(ctx context.Context) ([]project.Project, error)
	Project(ctx context.Context, id string) (project.Project, error)
	ProjectByName(ctx context.Context, name string) (project.Project, error)
	CreateProject(ctx context.Context, p project.Project) (project.Project, error)
	UpdateProject(ctx context.Context, id string, revision *int64, change func(*project.Project) error) (project.Project, error)

	Users(ctx context.Context) ([]auth.User, error)
	User(ctx context.Context, id string) (auth.User, error)
	UserByName(ctx context.Context, name string) (auth.User, error)
	CreateUser(ctx context.Context, u auth.User) (auth.User, error)
	APIKeys(ctx context.Context, userID string) ([]auth.APIKey, error)
	RevokeAPIKey(ctx context.Context, id string, at time.Time) error

	Process(ctx context.Context, id string) (process.Process, error)
	ProcessByName(ctx context.Context, projectID, name string) (process.Process, error)
	Processes(ctx context.Context, projectID, cursor string, limit int) ([]process.Process, string, error)
	Version(ctx context.Context, id string) (process.Version, error)
	Versions(ctx context.Context, f store.VersionFilter) ([]process.Version, string, error)
	Attempts(ctx context.Context, versionID string) ([]process.Attempt, error)
	Decisions(ctx context.Context, attemptID string) ([]placement.Decision, error)

	Clusters(ctx context.Context) ([]cluster.Cluster, error)
	ClusterHistory(ctx context.Context, id string) ([]cluster.Change, error)
	LiveCounts(ctx context.Context) (map[string]int32, error)
	DefaultCluster(ctx context.Context) (string, error)

	EventSource
	NameSource
}

// NameSource says what people and clusters are called.
type NameSource interface {
	User(ctx context.Context, id string) (auth.User, error)
	// ClusterNames returns the name of every cluster by its id, those that were removed included.
	ClusterNames(ctx context.Context) (map[string]string, error)
}

// EventSource is what event streams read.
type EventSource interface {
	Events(ctx context.Context, f store.EventFilter) ([]event.Event, error)
	LastSeq(ctx context.Context) (int64, error)
	Hub() *event.Hub
}

// Placement decides, for dry runs, and says what a user may choose. *placement.Engine fulfils it.
type Placement interface {
	Decide(ctx context.Context, attemptID string, r placement.Request) (placement.Decision, error)
	Choices(ctx context.Context, u placement.User, p placement.Project) ([]placement.Candidate, error)
}

// Plugins says what there is. *plugin.Host fulfils it.
type Plugins interface {
	List() []plugin.Status
	Types() []plugin.TypeInfo
	ServedTypes() map[string]string
}

// Logs reads the log of an attempt. *logs.Reader fulfils it.
type Logs interface {
	Follow(ctx context.Context, attemptID string, o logs.FollowOptions) (iter.Seq2[logs.Chunk, error], error)
}

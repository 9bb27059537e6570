package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/nagelfluh/nagelfluh/core/internal/problem"
)

// Submission is what a user sends: one version of a process that may not exist yet.
type Submission struct {
	Key    string // idempotency key, unique within the project; empty: none
	Name   string
	Type   string
	Labels map[string]string
	Spec   Spec
}

// Result is what became of one submission.
type Result struct {
	Version Version
	Existed bool // accepted earlier under the same key
}

// Store is what the service writes.
type Store interface {
	// Submit stores versions with their first attempts in one transaction. existed says which were there already under
	// their key. A key that was used for another body fails all with an error that wraps ErrKeyReused.
	Submit(ctx context.Context, projectID string, in []NewVersion) (out []Version, existed []bool, err error)
	// RequestCancel asks for a stop; of what has ended it changes nothing.
	RequestCancel(ctx context.Context, versionID, userID string, now time.Time) (Version, error)
}

// FindCluster returns the id of the cluster that a submission names by id or by name; false: there is none.
type FindCluster func(ctx context.Context, ref string) (id string, found bool, err error)

// Service accepts submissions and cancellations. Who may do so is decided before. It is safe for concurrent use.
type Service struct {
	store Store
	find  FindCluster
}

// NewService returns a service.
func NewService(store Store, find FindCluster) *Service { return &Service{store: store, find: find} }

// Submit validates every submission before it stores any; all are stored in one transaction or none. A refusal is a
// *problem.Error whose fields name the item as items[i] when there are several (bulk).
func (s *Service) Submit(ctx context.Context, userID, projectID string, in []Submission, bulk bool) ([]Result, error) {
	rows := make([]NewVersion, len(in))
	prefix := func(i int) string {
		if !bulk {
			return ""
		}
		return fmt.Sprintf("items[%d].", i)
	}
	var faults faults
	keys := make(map[string]int, len(in))
	for i, sub := range in {
		at := faults.at(prefix(i))
		at.submission(&sub)
		if first, twice := keys[sub.Key]; twice && sub.Key != "" {
			at.add("key", "is the key of items[%d] too: each item needs its own", first)
		}
		keys[sub.Key] = i
		rows[i] = newVersion(userID, sub)
	}
	if len(faults.list) > 0 {
		return nil, problem.Fields(problem.Invalid, faults.list)
	}
	if err := s.findClusters(ctx, rows, prefix); err != nil {
		return nil, err
	}
	for i := range rows {
		if err := rows[i].seal(prefix(i)); err != nil {
			return nil, err
		}
	}
	versions, existed, err := s.store.Submit(ctx, projectID, rows)
	if errors.Is(err, ErrKeyReused) {
		return nil, keyReused(err, prefix).Because(err)
	}
	if err != nil {
		return nil, fmt.Errorf("store the submission: %w", err)
	}
	out := make([]Result, len(versions))
	for i := range versions {
		out[i] = Result{Version: versions[i], Existed: existed[i]}
	}
	return out, nil
}

func keyReused(err error, prefix func(int) string) *problem.Error {
	const says = "was used in this project for another submission; take a new key for a new submission"
	var which interface{ Item() int } // the store says which item it was
	if errors.As(err, &which) {
		return problem.InField(problem.IdempotencyKeyReused, prefix(which.Item())+"key", says)
	}
	return problem.New(problem.IdempotencyKeyReused, "an idempotency key "+says)
}

// Check validates one submission as Submit does and returns the version as it would be stored, for a dry run.
func (s *Service) Check(ctx context.Context, userID, projectID string, sub Submission) (Process, Version, error) {
	var faults faults
	faults.at("").submission(&sub)
	if len(faults.list) > 0 {
		return Process{}, Version{}, problem.Fields(problem.Invalid, faults.list)
	}
	rows := []NewVersion{newVersion(userID, sub)}
	none := func(int) string { return "" }
	if err := s.findClusters(ctx, rows, none); err != nil {
		return Process{}, Version{}, err
	}
	if err := rows[0].seal(""); err != nil {
		return Process{}, Version{}, err
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	r := rows[0]
	p := Process{ID: r.ProcessID, ProjectID: projectID, Name: r.ProcessName, Type: r.ProcessType, Labels: r.ProcessLabels, CreatedBy: userID, CreatedAt: now}
	v := Version{
		ID: r.ID, ProcessID: r.ProcessID, ProjectID: projectID, ProcessName: r.ProcessName, ProcessType: r.ProcessType,
		ProcessLabels: r.ProcessLabels, Spec: r.Spec, SubmittedBy: userID, BodyHash: r.BodyHash, CreatedAt: now,
	}
	return p, v, nil
}

// Cancel asks for a stop of the version's latest attempt. Asking again, or after the end, changes nothing.
func (s *Service) Cancel(ctx context.Context, userID, versionID string) (Version, error) {
	v, err := s.store.RequestCancel(ctx, versionID, userID, time.Now().UTC().Truncate(time.Microsecond))
	if err != nil {
		return Version{}, fmt.Errorf("cancel version %s: %w", versionID, err)
	}
	return v, nil
}

func newVersion(userID string, sub Submission) NewVersion {
	id := func() string { return uuid.Must(uuid.NewV7()).String() }
	return NewVersion{
		ID: id(), AttemptID: id(), ProcessID: id(),
		ProcessName: sub.Name, ProcessType: sub.Type, ProcessLabels: sub.Labels, Spec: sub.Spec,
		SubmittedBy: userID, IdempotencyKey: sub.Key,
	}
}

// findClusters turns the clusters that submissions name into ids, each name looked up once.
func (s *Service) findClusters(ctx context.Context, rows []NewVersion, prefix func(int) string) error {
	var unknown []problem.Field
	ids := map[string]string{"": ""}
	for i := range rows {
		ref := rows[i].Spec.Cluster
		id, seen := ids[ref]
		if !seen {
			found := false
			var err error
			if id, found, err = s.find(ctx, ref); err != nil {
				return fmt.Errorf("look up cluster %q: %w", ref, err)
			}
			if !found {
				id = ""
			}
			ids[ref] = id
		}
		if id == "" && ref != "" {
			unknown = append(unknown, problem.Field{Field: prefix(i) + "spec.cluster",
				Message: fmt.Sprintf("there is no cluster %q; `nagelfluh clusters choices` lists those to choose from", ref)})
		}
		rows[i].Spec.Cluster = id
	}
	if len(unknown) > 0 {
		return problem.Fields(problem.UnknownCluster, unknown)
	}
	return nil
}

// MaxSpecBytes bounds one submission in its canonical form. A Kubernetes object holds about 1.5 MB.
const MaxSpecBytes = 1 << 20

// seal computes the body hash over the canonical submission: what two requests must share to be the same one.
func (n *NewVersion) seal(prefix string) error {
	body, err := json.Marshal(struct {
		Name   string            `json:"name"`
		Type   string            `json:"type,omitempty"`
		Labels map[string]string `json:"labels,omitempty"`
		Spec   Spec              `json:"spec"`
	}{n.ProcessName, n.ProcessType, n.ProcessLabels, n.Spec})
	if err != nil {
		return fmt.Errorf("write the canonical submission: %w", err)
	}
	if len(body) > MaxSpecBytes {
		return problem.InField(problem.TooLarge, prefix+"spec", "has %d bytes; at most %d are taken: keep large data in storage or in the image", len(body), MaxSpecBytes)
	}
	sum := sha256.Sum256(body)
	n.BodyHash = hex.EncodeToString(sum[:])
	return nil
}

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
)

// KeyReusedError says which item of a submission used an idempotency key that belongs to another body. It is
// process.ErrKeyReused.
type KeyReusedError struct {
	Index int // of the item in the call
	Key   string
}

// Error names the key.
func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("%v: key %q", process.ErrKeyReused, e.Key)
}

// Item is the index of the item, for those who do not import this package.
func (e *KeyReusedError) Item() int { return e.Index }

// Unwrap makes errors.Is find process.ErrKeyReused.
func (e *KeyReusedError) Unwrap() error { return process.ErrKeyReused }

// Submit stores versions, each with its first attempt and its event, all or none, and returns them in the order of the
// call. An item whose idempotency key the project knows with the same body is not stored again: what it became is
// returned, with existed true. Another body under the key refuses the whole call with a *KeyReusedError. An unknown
// project is project.ErrNotFound.
//
// A process is found by its name in the project, or made. A type or labels that a later submission brings replace those
// of the process. Items of one process get consecutive numbers in the order of the call.
func (db *DB) Submit(ctx context.Context, projectID string, in []process.NewVersion) (versions []process.Version, existed []bool, err error) {
	if len(in) == 0 {
		return nil, nil, nil
	}
	err = db.write(ctx, "submit", func(t *tx) (err error) {
		s := submission{tx: t, projectID: projectID, in: in, versions: make([]process.Version, len(in)), existed: make([]bool, len(in))}
		if err := s.run(ctx); err != nil {
			return err
		}
		versions, existed = s.versions, s.existed
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	return versions, existed, nil
}

// submission is one run of Submit. Everything is locked in one order (processes by name, keys by their text, the
// counter of events), so that two submissions never wait for each other.
type submission struct {
	*tx
	projectID string
	in        []process.NewVersion
	versions  []process.Version
	existed   []bool
	fresh     []int       // indexes of the items to store
	repeats   map[int]int // index of an item that repeats a key of this call → index of the first with it
}

func (s *submission) run(ctx context.Context) error {
	known, err := s.NewSelect().Table("projects").Where("id = ?", s.projectID).Exists(ctx)
	if err != nil {
		return err
	}
	if !known {
		return fmt.Errorf("%w: %s", project.ErrNotFound, s.projectID)
	}
	if err := s.sort(ctx); err != nil {
		return err
	}
	if len(s.fresh) > 0 {
		if err := s.number(ctx); err != nil {
			return err
		}
		if err := s.store(ctx); err != nil {
			return err
		}
	}
	for i, first := range s.repeats {
		s.versions[i], s.existed[i] = s.versions[first], true
	}
	return nil
}

// sort tells the items that exist from those that are new.
func (s *submission) sort(ctx context.Context) error {
	first := map[string]int{}
	for i, v := range s.in {
		if v.IdempotencyKey == "" {
			continue
		}
		if _, seen := first[v.IdempotencyKey]; !seen {
			first[v.IdempotencyKey] = i
		}
	}
	stored := map[string]process.Version{}
	keys := make([]string, 0, len(first))
	for k := range first {
		keys = append(keys, k)
	}
	for chunk := range slices.Chunk(keys, 500) {
		var rows []versionModel
		if err := s.NewSelect().Model(&rows).Relation("Process").Relation("Attempt").
			Where("v.project_id = ?", s.projectID).Where("v.idempotency_key IN (?)", bun.List(chunk)).Scan(ctx); err != nil {
			return err
		}
		for _, m := range rows {
			stored[m.IdempotencyKey] = m.version()
		}
	}
	s.repeats = map[int]int{}
	for i, v := range s.in {
		if v.IdempotencyKey == "" {
			s.fresh = append(s.fresh, i)
			continue
		}
		old, exists := stored[v.IdempotencyKey]
		j := first[v.IdempotencyKey]
		if exists && old.BodyHash != v.BodyHash || s.in[j].BodyHash != v.BodyHash {
			return &KeyReusedError{Index: i, Key: v.IdempotencyKey}
		}
		switch {
		case exists:
			s.versions[i], s.existed[i] = old, true
		case j != i:
			s.repeats[i] = j
		default:
			s.fresh = append(s.fresh, i)
		}
	}
	return nil
}

// number finds or makes the processes and takes the numbers of the new versions.
func (s *submission) number(ctx context.Context) error {
	byName := map[string][]int{}
	for _, i := range s.fresh {
		byName[s.in[i].ProcessName] = append(byName[s.in[i].ProcessName], i)
	}
	names := make([]string, 0, len(byName))
	for n := range byName {
		names = append(names, n)
	}
	slices.Sort(names)
	at := now()
	for _, name := range names {
		items := byName[name]
		want := processModel{ProjectID: s.projectID, Name: name, CreatedAt: micros(at), LastVersion: int64(len(items))}
		for _, i := range items { // the last one that says something counts
			v := s.in[i]
			if want.ID == "" {
				want.ID, want.CreatedBy = v.ProcessID, v.SubmittedBy
			}
			if v.ProcessType != "" {
				want.Type = v.ProcessType
			}
			if len(v.ProcessLabels) > 0 {
				want.Labels = labelsJSON(v.ProcessLabels)
			}
		}
		got, err := s.process(ctx, want)
		if err != nil {
			return err
		}
		for n, i := range items {
			s.versions[i] = process.Version{
				ProcessID: got.ID, ProcessName: got.Name, ProcessType: got.Type, ProcessLabels: labelsOf(got.Labels),
				Number: got.LastVersion - int64(len(items)-1-n), CreatedAt: at,
			}
		}
	}
	return nil
}

// upsertProcess makes a process or takes numbers from it; its row stays locked until the commit.
const upsertProcess = "INSERT INTO processes (id, project_id, name, type, labels, created_by, created_at, last_version) " +
	"VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (project_id, name) DO UPDATE SET " +
	"last_version = processes.last_version + excluded.last_version, " +
	"type = CASE WHEN excluded.type = '' THEN processes.type ELSE excluded.type END, " +
	"labels = CASE WHEN excluded.labels = '' THEN processes.labels ELSE excluded.labels END " +
	"RETURNING id, type, labels, last_version"

func (s *submission) process(ctx context.Context, m processModel) (processModel, error) {
	err := s.get(ctx, upsertProcess, []any{m.ID, m.ProjectID, m.Name, m.Type, m.Labels, m.CreatedBy, m.CreatedAt, m.LastVersion},
		&m.ID, &m.Type, &m.Labels, &m.LastVersion)
	if m.Labels == "" {
		m.Labels = "{}"
	}
	return m, err
}

var insertVersions = newInsertion("process_versions", []string{
	"id", "process_id", "project_id", "number", "spec", "submitted_by", "idempotency_key", "body_hash", "attempt_id", "state", "created_at",
}, " ON CONFLICT (project_id, idempotency_key) DO NOTHING")

// store writes the new versions, their attempts and their events.
func (s *submission) store(ctx context.Context) error {
	for _, i := range s.fresh {
		n, v := s.in[i], &s.versions[i]
		v.ID, v.ProjectID, v.Spec, v.SubmittedBy = n.ID, s.projectID, n.Spec, n.SubmittedBy
		v.IdempotencyKey, v.BodyHash = n.IdempotencyKey, n.BodyHash
		v.Attempt = process.Attempt{
			ID: n.AttemptID, VersionID: n.ID, ProjectID: s.projectID, Number: 1, State: process.Placing, NextTryAt: v.CreatedAt,
			CreatedAt: v.CreatedAt, UpdatedAt: v.CreatedAt, Revision: 1,
		}
		s.emit(ctx, event.Event{
			At: v.CreatedAt, Kind: event.Submitted, ProjectID: v.ProjectID, ProcessID: v.ProcessID, VersionID: v.ID, AttemptID: v.Attempt.ID,
			Actor: v.SubmittedBy, State: string(process.Placing), Message: "Submitted",
			Data: event.Facts{Attempt: 1}.With(nil),
		})
	}
	byKey := slices.Clone(s.fresh)
	slices.SortStableFunc(byKey, func(a, b int) int { return strings.Compare(s.in[a].IdempotencyKey, s.in[b].IdempotencyKey) })
	stored, err := s.insert(ctx, insertVersions, len(byKey), func(args []any, i int) []any {
		v := s.versions[byKey[i]]
		return append(args, v.ID, v.ProcessID, v.ProjectID, v.Number, toJSON(v.Spec), v.SubmittedBy, orNull(v.IdempotencyKey), v.BodyHash,
			v.Attempt.ID, string(v.Attempt.State), micros(v.CreatedAt))
	})
	if err != nil {
		return err
	}
	if stored < int64(len(byKey)) {
		return errAgain // another submission stored a key after the look at them; the next look sees it
	}
	_, err = s.insert(ctx, insertAttempts, len(s.fresh), func(args []any, i int) []any {
		v := s.versions[s.fresh[i]]
		row := attemptRow(v.Attempt, v.ProcessID)
		return append(args, row.values()...)
	})
	return err
}

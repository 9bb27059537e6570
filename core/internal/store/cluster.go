package store

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

type clusterModel struct {
	bun.BaseModel `bun:"table:clusters,alias:c"`

	ID             string `bun:",pk"`
	Name           string
	Type           string
	ProviderConfig string
	Namespace      string `bun:",nullzero"`
	Labels         string
	SortOrder      int32
	Active         bool
	QueueName      string
	MaxRuntime     *int64
	Provisioning   string
	Cordon         string `bun:",nullzero"`
	Lease          string `bun:",nullzero"`
	Observed       string
	CreatedAt      int64
	UpdatedAt      int64
	Revision       int64
	ConfigRevision int64
	RemovedAt      *int64
}

func (db *DB) cluster(m clusterModel) cluster.Cluster {
	c := cluster.Cluster{
		ID: m.ID, Name: m.Name, Type: m.Type, ProviderConfig: db.configOf(m), Namespace: m.Namespace,
		Labels: labelsOf(m.Labels), SortOrder: m.SortOrder, Active: m.Active, QueueName: m.QueueName, MaxRuntime: m.MaxRuntime,
		Provisioning: cluster.Provisioning(m.Provisioning), CreatedAt: timeOf(m.CreatedAt), UpdatedAt: timeOf(m.UpdatedAt),
		Revision: m.Revision, ConfigRevision: m.ConfigRevision,
	}
	if m.Cordon != "" {
		c.Cordon = &cluster.Cordon{}
		fromJSON(m.Cordon, c.Cordon)
	}
	if m.Lease != "" {
		c.Lease = &cluster.ForeignLease{}
		fromJSON(m.Lease, c.Lease)
	}
	c.Observed = m.observed()
	return c
}

func (m clusterModel) observed() (o cluster.Observed) {
	fromJSON(m.Observed, &o)
	return o
}

// clusterRow is what an admin says of a cluster; the config, which is to be sealed, what was observed and the counts are
// not in it.
func clusterRow(c cluster.Cluster) clusterModel {
	m := clusterModel{
		ID: c.ID, Name: c.Name, Type: c.Type, Namespace: c.Namespace,
		Labels: labelsJSON(c.Labels), SortOrder: c.SortOrder, Active: c.Active, QueueName: c.QueueName, MaxRuntime: c.MaxRuntime,
		Provisioning: cmp.Or(string(c.Provisioning), string(cluster.Provisioned)),
	}
	if c.Cordon != nil {
		m.Cordon = toJSON(c.Cordon)
	}
	if c.Lease != nil {
		m.Lease = toJSON(c.Lease)
	}
	return m
}

// Clusters returns every cluster that is not removed, by sort order, then by name. Others may get the same maps and
// pointers, so nobody changes what they hold.
func (db *DB) Clusters(ctx context.Context) ([]cluster.Cluster, error) {
	all, err := recall(&db.memory, &db.memory.clusters, func() ([]cluster.Cluster, error) {
		var rows []clusterModel
		if err := db.ro.NewSelect().Model(&rows).Where("c.removed_at IS NULL").Order("c.sort_order", "c.name").Scan(ctx); err != nil {
			return nil, err
		}
		all := make([]cluster.Cluster, len(rows))
		for i, m := range rows {
			all[i] = db.cluster(m)
		}
		return all, nil
	})
	return slices.Clone(all), err
}

// ClusterNames returns the name of every cluster by its id, those that were removed included.
func (db *DB) ClusterNames(ctx context.Context) (map[string]string, error) {
	var rows []struct{ ID, Name string }
	if err := db.ro.NewSelect().Table("clusters").Column("id", "name").Scan(ctx, &rows); err != nil {
		return nil, err
	}
	names := make(map[string]string, len(rows))
	for _, r := range rows {
		names[r.ID] = r.Name
	}
	return names, nil
}

// Cluster returns one cluster, or cluster.ErrNotFound. A removed one is not found.
func (db *DB) Cluster(ctx context.Context, id string) (cluster.Cluster, error) {
	all, err := db.Clusters(ctx)
	if err != nil {
		return cluster.Cluster{}, err
	}
	for _, c := range all {
		if c.ID == id {
			return c, nil
		}
	}
	return cluster.Cluster{}, fmt.Errorf("%w: %s", cluster.ErrNotFound, id)
}

// CreateCluster stores a cluster and returns it as stored. An empty id is filled in; times, revisions and what is observed
// are set here. A name in use is cluster.ErrNameUsed.
func (db *DB) CreateCluster(ctx context.Context, c cluster.Cluster) (cluster.Cluster, error) {
	c.ID = cmp.Or(c.ID, newID())
	m := clusterRow(c)
	at := now()
	m.CreatedAt, m.UpdatedAt, m.Revision, m.ConfigRevision = micros(at), micros(at), 1, 1
	m.Observed = toJSON(cluster.Observed{Health: cluster.New, Since: at, Identity: c.Observed.Identity, NamespaceUID: c.Observed.NamespaceUID})
	err := db.write(ctx, "create-cluster", func(t *tx) (err error) {
		if m.ProviderConfig, err = t.sealConfig(ctx, c.ID, c.ProviderConfig, ""); err != nil {
			return err
		}
		if _, err := t.NewInsert().Model(&m).Exec(ctx); err != nil {
			return nameUsed(err, cluster.ErrNameUsed, c.Name)
		}
		t.emit(ctx, event.Event{Kind: event.ClusterChanged, ClusterID: c.ID, Message: "Cluster " + c.Name + " added"})
		return nil
	})
	if err != nil {
		return cluster.Cluster{}, err
	}
	return db.cluster(m), nil
}

// UpdateCluster reads a cluster, changes what an admin says of it and writes it, as one step. With a revision it does so
// only when the cluster still has it, else cluster.ErrStale. The function is pure and may run more than once; a change
// that leaves everything as it was writes nothing. Neither the namespace nor a known identity, the one thing of what is
// observed that an admin may change, does so while live attempts hold the cluster (cluster.ErrInUse).
func (db *DB) UpdateCluster(ctx context.Context, id string, revision *int64, change func(*cluster.Cluster) error) (cluster.Cluster, error) {
	var out cluster.Cluster
	err := db.write(ctx, "update-cluster", func(t *tx) error {
		m, err := t.clusterForUpdate(ctx, id)
		if err != nil {
			return err
		}
		if revision != nil && *revision != m.Revision {
			return fmt.Errorf("%w: %s is at revision %d, not %d", cluster.ErrStale, m.Name, m.Revision, *revision)
		}
		c := db.cluster(m)
		known := c.Observed
		if err := change(&c); err != nil {
			return err
		}
		next := clusterRow(c)
		if next.ProviderConfig, err = t.sealConfig(ctx, id, c.ProviderConfig, m.ProviderConfig); err != nil {
			return err
		}
		next.ID, next.Observed, next.CreatedAt, next.UpdatedAt = m.ID, m.Observed, m.CreatedAt, m.UpdatedAt
		identified := c.Observed.Identity != known.Identity
		switch o := known; {
		case identified:
			o.Identity, o.NamespaceUID = c.Observed.Identity, c.Observed.NamespaceUID
			next.Observed = toJSON(o)
		case next.Namespace != m.Namespace && o.NamespaceUID != "": // it is that of the namespace of before
			if o.Identity == o.NamespaceUID {
				o.Identity = ""
			}
			o.NamespaceUID = ""
			next.Observed = toJSON(o)
		}
		next.Revision, next.ConfigRevision = m.Revision, m.ConfigRevision
		if reflect.DeepEqual(m, next) {
			out = db.cluster(m)
			return nil
		}
		if next.Namespace != m.Namespace || identified && known.Identity != "" {
			if err := t.unused(ctx, m); err != nil {
				return err
			}
		}
		next.UpdatedAt = micros(now())
		next.Revision++
		if next.Type != m.Type || next.ProviderConfig != m.ProviderConfig {
			next.ConfigRevision++
		}
		if _, err := t.NewUpdate().Model(&next).ExcludeColumn("id", "created_at", "removed_at").WherePK().Exec(ctx); err != nil {
			return nameUsed(err, cluster.ErrNameUsed, next.Name)
		}
		t.emit(ctx, event.Event{Kind: event.ClusterChanged, ClusterID: id, Message: "Cluster " + next.Name + " changed"})
		out = db.cluster(next)
		return nil
	})
	return out, err
}

// DeleteCluster removes a cluster that no live attempt holds, else cluster.ErrInUse with the counts. Its row stays for the
// history of what ran there; its name is free.
func (db *DB) DeleteCluster(ctx context.Context, id string) error {
	return db.write(ctx, "delete-cluster", func(t *tx) error {
		m, err := t.clusterForUpdate(ctx, id)
		if err != nil {
			return err
		}
		if err := t.unused(ctx, m); err != nil {
			return err
		}
		// The ways into the cluster are not kept longer than they are needed.
		if _, err := t.NewUpdate().Model(&m).Set("removed_at = ?", micros(now())).Set("provider_config = '{}'").WherePK().Exec(ctx); err != nil {
			return err
		}
		t.emit(ctx, event.Event{Kind: event.ClusterChanged, ClusterID: id, Message: "Cluster " + m.Name + " removed"})
		return nil
	})
}

func (t *tx) clusterForUpdate(ctx context.Context, id string) (clusterModel, error) {
	var m clusterModel
	err := t.lock(t.NewSelect().Model(&m).Where("c.id = ?", id).Where("c.removed_at IS NULL"), "UPDATE").Scan(ctx)
	if noRows(err) {
		return m, fmt.Errorf("%w: %s", cluster.ErrNotFound, id)
	}
	return m, err
}

// holdCluster makes sure that a cluster is there and is not removed before the transaction ends.
func (t *tx) holdCluster(ctx context.Context, id string) error {
	query := "SELECT 1 FROM clusters WHERE id = ? AND removed_at IS NULL"
	if t.db.rowLocks() {
		query += " FOR SHARE"
	}
	var one int
	err := t.get(ctx, query, []any{id}, &one)
	if noRows(err) {
		return fmt.Errorf("%w: %s", cluster.ErrNotFound, id)
	}
	return err
}

// unused refuses while live attempts are pinned to the cluster, whose row is locked.
func (t *tx) unused(ctx context.Context, m clusterModel) error {
	var rows []struct {
		State string
		N     int
	}
	if err := t.NewSelect().Table("attempts").Column("state").ColumnExpr("count(*) AS n").Where("cluster_id = ?", m.ID).
		Where("ended_at IS NULL").Group("state").Scan(ctx, &rows); err != nil {
		return err
	}
	counts := make(map[string]int, len(rows))
	for _, r := range rows {
		counts[r.State] = r.N
	}
	var words []string
	for _, s := range process.States {
		if n := counts[string(s)]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(words) > 0 {
		return fmt.Errorf("%w: %s has %s", cluster.ErrInUse, m.Name, strings.Join(words, ", "))
	}
	return nil
}

// nameUsed turns a broken unique index into the error of the domain.
func nameUsed(err, domain error, name string) error {
	if duplicate(err) {
		return fmt.Errorf("%w: %q", domain, name)
	}
	return err
}

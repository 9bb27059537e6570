package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/migrations"
)

// Whoever reads the clusters after a write has returned sees that write, however many read meanwhile.
func TestRememberedClustersAreNeverStale(t *testing.T) {
	db := open(t, newURL(t, migrations.SQLite))
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := db.Clusters(t.Context()); err != nil && t.Context().Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer readers.Wait()
	defer close(stop)
	for i := range 200 {
		queue := fmt.Sprint("queue-", i)
		if _, err := db.UpdateCluster(t.Context(), cluster.DefaultID, nil, func(c *cluster.Cluster) error {
			c.QueueName = queue
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		all, err := db.Clusters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if all[0].QueueName != queue {
			t.Fatalf("after the write of %q the clusters still say %q", queue, all[0].QueueName)
		}
		id := []string{"", cluster.DefaultID}[i%2]
		if err := db.SetSetting(t.Context(), SettingDefaultCluster, id); err != nil {
			t.Fatal(err)
		}
		if got, err := db.DefaultCluster(t.Context()); err != nil || got != id {
			t.Fatalf("after the write of %q the default is %q, %v", id, got, err)
		}
	}
}

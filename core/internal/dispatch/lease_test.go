package dispatch

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/store"
)

// copied is a rig on a copy of the database as it is now, with the same clusters.
func copied(r *rig) *rig {
	t := r.t
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy.db")
	raw, err := sql.Open("sqlite", r.path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.ExecContext(t.Context(), "VACUUM INTO ?", path); err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), store.Options{URL: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := &rig{t: t, db: db, path: path, user: r.user, project: r.project, options: r.options, clients: r.clients, placer: r.placer, logs: &keeper{}}
	c.options.Store, c.options.Ledger, c.options.Logs = db, placement.NewLedger(), c.logs
	t.Cleanup(c.stop)
	return c
}

func (a *api) leaseNow() (holder, writer string, epoch int64, renewals int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lease.Spec.HolderIdentity != nil {
		holder = *a.lease.Spec.HolderIdentity
	}
	epoch, _ = strconv.ParseInt(a.lease.Annotations[leaseEpoch], 10, 64)
	return holder, a.lease.Annotations[leaseWriter], epoch, a.renewals
}

// renewed waits for n renewals from now on.
func (r *rig) renewed(a *api, n int) {
	r.t.Helper()
	_, _, _, before := a.leaseNow()
	r.when("renewals of the Lease", func() bool { _, _, _, now := a.leaseNow(); return now >= before+n }, nil)
}

// confirm is what an admin does.
func (r *rig) confirm(clusterID string) {
	r.t.Helper()
	if _, err := cluster.NewService(r.db, nil, nil, nil).TakeOver(r.t.Context(), clusterID, r.user); err != nil {
		r.t.Fatal(err)
	}
}

func leaseRig(t *testing.T) (*rig, *api, string) {
	r, a := newRig(t), newAPI(t)
	r.options.LeasePeriod = 100 * time.Millisecond
	return r, a, r.add("a", a)
}

func isHeld(a process.Attempt) bool { return a.ReasonCode == reasonHeld }

func TestLeaseIsKeptWithAGrowingEpoch(t *testing.T) {
	r, a, _ := leaseRig(t)
	r.start()
	r.state(r.submit(1)[0], process.Queued)
	holder, writer, first, _ := a.leaseNow()
	if holder != "test" || writer == "" || first < 1 {
		t.Errorf("after the first write: holder %q, writer %q, epoch %d", holder, writer, first)
	}
	r.renewed(a, 3)
	if _, _, later, _ := a.leaseNow(); later <= first {
		t.Errorf("epoch %d after %d", later, first)
	}
	r.restart() // a restart on the same database is no stranger
	r.renewed(a, 2)
	if _, again, _, _ := a.leaseNow(); again == writer {
		t.Error("two processes wrote under one name")
	}
	r.state(r.submit(1)[0], process.Queued)
	if n := len(r.events(event.Held)); n != 0 {
		t.Errorf("%d events of a held namespace", n)
	}
}

func TestLeaseOfAnotherInstallationStopsWritesUntilConfirmed(t *testing.T) {
	r, a, id := leaseRig(t)
	a.lease.Spec.HolderIdentity = new("stranger")
	a.lease.Annotations = map[string]string{leaseEpoch: "41", leaseWriter: "w"}
	r.start()
	v := r.submit(1)[0]
	row := r.until(v, "the wait", isHeld)
	if row.State != process.Creating || !strings.Contains(row.Reason, "stranger") || !strings.Contains(row.Reason, "clusters take-over a") {
		t.Errorf("%s: %s", row.State, row.Reason)
	}
	c, err := r.db.Cluster(t.Context(), id)
	if err != nil || c.Lease == nil || c.Lease.Holder != "stranger" || len(r.events(event.Held)) != 1 || a.posted() != 0 {
		t.Fatalf("the cluster says %+v (%v); %d events, %d create requests", c.Lease, err, len(r.events(event.Held)), a.posted())
	}
	r.restart() // it is not forgotten
	r.until(v, "the wait", isHeld)
	r.confirm(id)
	wantOneJob(t, r, a, v)
	r.when("the cluster says nothing of it", func() bool { c, err := r.db.Cluster(t.Context(), id); return err == nil && c.Lease == nil }, nil)
	if holder, _, epoch, _ := a.leaseNow(); holder != "test" || epoch <= 41 {
		t.Errorf("holder %q, epoch %d", holder, epoch)
	}
	if _, err := cluster.NewService(r.db, nil, nil, nil).TakeOver(t.Context(), id, r.user); err == nil {
		t.Error("nothing was there to take over, and it was")
	}
}

func TestWithoutTheRightToLeasesWorkGoesOn(t *testing.T) {
	r, a, _ := leaseRig(t)
	a.lease = nil
	r.start()
	wantOneJob(t, r, a, r.submit(1)[0])
}

// A Lease that cannot be looked at for a while delays the first write and no later one.
func TestLeaseThatCannotBeRead(t *testing.T) {
	r, a, _ := leaseRig(t)
	a.surround(func(w http.ResponseWriter, q *http.Request, next http.HandlerFunc) {
		if strings.Contains(q.URL.Path, "/leases") {
			status(w, 500, metav1.StatusReasonInternalError, "etcdserver: request timed out")
			return
		}
		next(w, q)
	})
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Creating)
	a.surround(nil)
	wantOneJob(t, r, a, v)
}

// A copy of the database that is started beside the server that goes on: it neither creates nor deletes anything. When an
// admin has it take over, the other one stops.
func TestLeaseStopsACopyOfTheDatabase(t *testing.T) {
	r, a, id := leaseRig(t)
	r.start()
	v := r.submit(1)[0]
	r.state(v, process.Queued)
	a.pod(a.only().Labels, running)
	r.state(v, process.Running)
	second := copied(r)
	r.renewed(a, 2)

	second.start()
	second.when("the Lease is seen", func() bool { c, err := second.db.Cluster(t.Context(), id); return err == nil && c.Lease != nil }, nil)
	own := second.submit(1)[0]
	second.until(own, "the wait", isHeld)
	second.cancel(v)
	row := second.until(v, "the wait", isHeld)
	if row.State != process.Cancelling || !strings.Contains(row.Reason, "another copy") {
		t.Errorf("%s: %s", row.State, row.Reason)
	}
	r.state(r.submit(1)[0], process.Queued) // the first one works on
	if n, deleted := a.posted(), len(a.deletes); n != 2 || deleted != 0 {
		t.Fatalf("%d Jobs were made, %d deleted", n, deleted)
	}

	second.confirm(id)
	second.state(own, process.Queued)
	a.dropPod()
	second.state(v, process.Cancelled)
	r.when("the first server stops", func() bool { return r.d.fleet.worker(id).fenceOf("jobs").state == leaseForeign }, nil)
	r.until(r.submit(1)[0], "the wait", isHeld)
	if n := a.posted(); n != 3 {
		t.Errorf("%d Jobs were made, want 3", n)
	}
}

// A copy that is started before the Leases have moved on is not behind: then the other one finds that it is.
func TestLeaseStopsTheServerWhoseCopyWasStartedAtOnce(t *testing.T) {
	r, a, id := leaseRig(t)
	r.options.LeasePeriod = time.Hour
	r.start()
	r.state(r.submit(1)[0], process.Queued)
	second := copied(r)
	second.start()
	second.state(second.submit(1)[0], process.Queued)
	r.d.fleet.worker(id).look <- struct{}{} // as if its period had passed
	r.when("the first server stops", func() bool { return r.d.fleet.worker(id).fenceOf("jobs").state == leaseForeign }, nil)
	r.until(r.submit(1)[0], "the wait", isHeld)
	if n := a.posted(); n != 2 {
		t.Errorf("%d Jobs were made, want 2", n)
	}
}

// An older database is restored: what it still has to create may have run to its end meanwhile, and is not run again.
func TestLeaseAndARestoredDatabase(t *testing.T) {
	r, a, id := leaseRig(t)
	r.options.Retention = time.Millisecond
	r.start()
	first := r.submit(1)[0]
	r.state(first, process.Queued)
	a.change(completed)
	r.state(first, process.Succeeded)
	r.when("its Job to be deleted", func() bool { return a.count() == 0 }, nil)
	r.stop()
	v := r.submit(1)[0]
	backup := copied(r)
	r.start()
	r.state(v, process.Queued)
	a.change(completed)
	r.state(v, process.Succeeded)
	r.when("its Job to be deleted", func() bool { return a.count() == 0 }, nil)
	r.stop()

	backup.start()
	backup.until(v, "the wait", isHeld)
	backup.confirm(id)
	end := backup.state(v, process.Unknown)
	if end.ReasonCode != reasonMayHave || a.posted() != 2 {
		t.Errorf("%s: %s; %d Jobs were made", end.ReasonCode, end.Reason, a.posted())
	}
	backup.state(backup.submit(1)[0], process.Queued)
}

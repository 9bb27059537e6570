package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
)

// The Lease in each job namespace.
const (
	leaseName      = "nagelfluh"
	leaseEpoch     = "nagelfluh.io/epoch"
	leaseWriter    = "nagelfluh.io/writer"
	leaseFirstLook = 500 * time.Millisecond // the pause between looks until the first one succeeds
)

const (
	reasonHeld     = "namespace-held"
	reasonMayHave  = "may-have-run"
	leaseUnknown   = fenceState(0)
	leaseOpen      = fenceState(1)
	leaseForeign   = fenceState(2)
	takeOverRemedy = "An admin confirms with `nagelfluh clusters take-over %s` that it is this installation's."
)

type fenceState int

// fence is what is known of the right to write to a namespace: the checks before writes look here alone.
type fence struct {
	state   fenceState
	message string // why nothing may be written
	warned  bool   // that there is no Lease
	taken   bool   // this process took it over from a copy of its database
}

// held is the error of a write to a namespace that another database holds. Its end wakes every attempt, as the return of a
// cluster does.
type held struct{ message string }

func (h *held) Error() string        { return h.message }
func (h *held) Is(target error) bool { return target == errParked }

// fenced says why nothing may be written to the namespace now; nil: it may.
func (w *worker) fenced(namespace string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fences[namespace]
	if f == nil {
		f = &fence{}
		w.fences[namespace] = f
		select {
		case w.look <- struct{}{}:
		default:
		}
	}
	switch f.state {
	case leaseOpen:
		return nil
	case leaseForeign:
		return &held{f.message}
	}
	return errParked // the first look at the Lease is under way
}

// takenOver says whether the attempt may have run under a copy of this database that held its namespace: it is older than
// this process, and the cluster no longer knows of its Job.
func (w *worker) takenOver(row process.Attempt) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fences[row.Namespace]
	return f != nil && f.taken && row.CreatedAt.Before(w.d.lineage.begun)
}

// sayHeld shows on the attempt that its namespace is held, when that is the error.
func (w *worker) sayHeld(ctx context.Context, a *attempt, row process.Attempt, err error) error {
	if h := (*held)(nil); errors.As(err, &h) {
		if _, err := w.say(ctx, a, row, reasonHeld, h.message); err != nil {
			return err
		}
	}
	return err
}

// leases looks at the Lease of each namespace and renews it, in each period.
func (w *worker) leases(ctx context.Context) {
	_ = w.fenced(namespaceOf(w.row(), w.d.o.DefaultNamespace))
	for {
		pause := w.d.o.LeasePeriod
		w.mu.Lock()
		var namespaces []string
		for ns := range w.fences {
			namespaces = append(namespaces, ns)
		}
		w.mu.Unlock()
		for _, ns := range namespaces {
			if err := w.checkLease(ctx, ns); err != nil {
				w.log.Debug("cannot look at the Lease; trying again", "namespace", ns, "error", err)
				if w.fenceOf(ns).state == leaseUnknown {
					pause = min(pause, leaseFirstLook)
				}
			}
		}
		timer := w.d.o.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-w.look:
			timer.Stop()
		case <-timer.C():
		}
	}
}

func (w *worker) fenceOf(namespace string) fence {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.fences[namespace]; f != nil {
		return *f
	}
	return fence{}
}

// setFence notes what was found and wakes every attempt when it is news.
func (w *worker) setFence(namespace string, next fence) {
	w.mu.Lock()
	before := w.fences[namespace]
	news := before == nil || before.state != next.state || before.message != next.message
	if before != nil {
		next.taken = next.taken || before.taken
		next.warned = next.warned || before.warned
	}
	w.fences[namespace] = &next
	w.mu.Unlock()
	if news {
		w.wakeAll()
	}
}

// checkLease looks at the Lease of a namespace, and makes or renews it when it is ours. An error says that it could not
// be looked at; what was known stays.
func (w *worker) checkLease(ctx context.Context, namespace string) error {
	found, err := w.getLease(ctx, namespace)
	if err != nil {
		return w.withoutLease(namespace, err)
	}
	l := w.d.lineage
	writer, epoch, holder := "", int64(0), ""
	if found != nil {
		writer = found.Annotations[leaseWriter]
		epoch, _ = strconv.ParseInt(found.Annotations[leaseEpoch], 10, 64)
		if found.Spec.HolderIdentity != nil {
			holder = *found.Spec.HolderIdentity
		}
	}
	taken := false
	if holder != "" && (holder != w.d.o.Installation || !l.ours(writer, epoch)) {
		confirmed, err := w.foreign(ctx, namespace, holder, writer)
		if err != nil || !confirmed {
			return err
		}
		if err := w.d.advance(ctx, epoch); err != nil {
			return err
		}
		taken = holder == w.d.o.Installation
	}
	if err := w.putLease(ctx, namespace, found); err != nil {
		return w.withoutLease(namespace, err)
	}
	if err := w.mine(ctx, namespace); err != nil {
		return err
	}
	w.setFence(namespace, fence{state: leaseOpen, taken: taken})
	return nil
}

// getLease reads the Lease; nil: there is none.
func (w *worker) getLease(ctx context.Context, namespace string) (found *coordinationv1.Lease, err error) {
	err = w.call(ctx, "get-lease", func(ctx context.Context, c *kube.Client) error {
		found, err = c.Clientset.CoordinationV1().Leases(namespace).Get(ctx, leaseName, metav1.GetOptions{})
		return err
	})
	if kube.Classify(err) == kube.NotFound {
		return nil, nil
	}
	return found, err
}

// putLease writes the Lease with the present epoch, unless somebody else did since it was read.
func (w *worker) putLease(ctx context.Context, namespace string, found *coordinationv1.Lease) error {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName, Namespace: namespace}}
	if found != nil {
		next = found.DeepCopy()
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[leaseWriter] = w.d.lineage.writer
	next.Annotations[leaseEpoch] = strconv.FormatInt(w.d.lineage.now(), 10)
	now := metav1.NewMicroTime(w.d.now())
	next.Spec.HolderIdentity, next.Spec.RenewTime = &w.d.o.Installation, &now
	next.Spec.LeaseDurationSeconds = new(int32(3 * w.d.o.LeasePeriod / time.Second))
	if *next.Spec.LeaseDurationSeconds < 1 {
		*next.Spec.LeaseDurationSeconds = 1
	}
	return w.call(ctx, "put-lease", func(ctx context.Context, c *kube.Client) (err error) {
		leases := c.Clientset.CoordinationV1().Leases(namespace)
		if found == nil {
			_, err = leases.Create(ctx, next, metav1.CreateOptions{})
			return err
		}
		_, err = leases.Update(ctx, next, metav1.UpdateOptions{})
		return err
	})
}

// withoutLease decides about an error: a cluster that refuses Leases is worked on without one, with a warning. Where one
// was already seen to be somebody else's nothing changes.
func (w *worker) withoutLease(namespace string, err error) error {
	switch kube.Classify(err) {
	case kube.Permissions, kube.NotFound, kube.Invalid:
	default:
		return err // no answer yet, or another server was quicker
	}
	f := w.fenceOf(namespace)
	if w.ctx.Err() != nil || f.state == leaseForeign {
		return err
	}
	if !f.warned && kube.Classify(err) != kube.NotFound { // a namespace that is not there yet gets its Lease later
		w.log.Warn("works without a Lease: a second server on a copy of the database would not be noticed. Grant get, create and update on leases.coordination.k8s.io",
			"namespace", namespace, "error", err)
		f.warned = true
	}
	w.setFence(namespace, fence{state: leaseOpen, warned: f.warned})
	return nil
}

// foreign notes that the Lease is another database's, and says whether an admin has confirmed that it is to be taken over.
func (w *worker) foreign(ctx context.Context, namespace, holder, writer string) (confirmed bool, err error) {
	row, err := w.d.o.Store.Cluster(ctx, w.id)
	if err != nil {
		return false, fmt.Errorf("read cluster %s: %w", w.id, err)
	}
	same := func(l *cluster.ForeignLease) bool {
		return l != nil && l.Namespace == namespace && l.Holder == holder && (l.Writer == writer || l.ConfirmedAt != nil)
	}
	if same(row.Lease) && row.Lease.ConfirmedAt != nil {
		return true, nil
	}
	who := fmt.Sprintf("another installation (%s)", holder)
	if holder == w.d.o.Installation {
		who = "another copy of this installation's database"
	}
	message := fmt.Sprintf("Namespace %q on cluster %q is held by %s; nothing is created or deleted there. "+takeOverRemedy, namespace, row.Name, who, row.Name)
	if !same(row.Lease) {
		now := w.d.now().UTC().Truncate(time.Microsecond)
		_, err := w.d.o.Store.UpdateCluster(ctx, w.id, nil, func(c *cluster.Cluster) error {
			if !same(c.Lease) {
				c.Lease = &cluster.ForeignLease{Namespace: namespace, Holder: holder, Writer: writer, Message: message, Since: now}
			}
			return nil
		})
		if err != nil {
			return false, fmt.Errorf("note the Lease on cluster %s: %w", row.Name, err)
		}
		w.log.Error("the Lease of the job namespace is another database's", "namespace", namespace, "holder", holder)
		if err := w.d.o.Store.Report(ctx, event.Event{Kind: event.Held, ClusterID: w.id, Actor: system, Message: message}); err != nil {
			return false, fmt.Errorf("report the Lease: %w", err)
		}
	}
	w.setFence(namespace, fence{state: leaseForeign, message: message})
	return false, nil
}

// mine clears what was noted of a foreign Lease in the namespace.
func (w *worker) mine(ctx context.Context, namespace string) error {
	if l := w.row().Lease; (l == nil || l.Namespace != namespace) && w.fenceOf(namespace).state != leaseForeign {
		return nil
	}
	row, err := w.d.o.Store.UpdateCluster(ctx, w.id, nil, func(c *cluster.Cluster) error {
		if c.Lease != nil && c.Lease.Namespace == namespace {
			c.Lease = nil
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("note that the Lease on cluster %s is ours: %w", w.id, err)
	}
	w.changed(row)
	message := fmt.Sprintf("Namespace %q on cluster %q is this installation's again.", namespace, row.Name)
	return w.d.o.Store.Report(ctx, event.Event{Kind: event.Held, ClusterID: w.id, Actor: system, Message: message})
}

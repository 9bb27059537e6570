package connection

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/capacity"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// look reads what jobs would find: which cluster it is, its queues and what its nodes hold. What cannot be read is left
// out, with a warning when it should have been there.
func (r *run) look() {
	until := r.began.Add(r.t.o.Total)
	ctx, cancel := context.WithDeadline(r.ctx, until)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, r.t.o.Phase)
	defer stop()
	var (
		wg       sync.WaitGroup
		mu       sync.Mutex
		warnings []string
	)
	for _, read := range []func(context.Context) string{r.readIdentity, r.readKueue, r.readCapacity} {
		wg.Go(func() {
			if text := read(ctx); text != "" {
				mu.Lock()
				warnings = append(warnings, text)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.Sort(warnings)
	r.report.Warnings = append(r.report.Warnings, warnings...)
}

// readIdentity finds the UID of kube-system, else of the job namespace, else nothing: unknown. It also finds out whether
// the job namespace is there.
func (r *run) readIdentity(ctx context.Context) string {
	namespaces := r.trial.Probe().CoreV1().Namespaces()
	system, err := namespaces.Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err == nil {
		r.report.Identity = string(system.UID)
	} else if class := kube.Classify(err); class != kube.Permissions && class != kube.NotFound {
		return "Which cluster it is could not be read: " + bare(err) + "."
	}
	own, err := namespaces.Get(ctx, r.trial.Namespace, metav1.GetOptions{})
	switch class := kube.Classify(err); class {
	case kube.OK:
		r.report.NamespaceUID = string(own.UID)
		if r.report.Identity == "" {
			r.report.Identity = r.report.NamespaceUID
		}
		if own.DeletionTimestamp != nil {
			return fmt.Sprintf("The namespace %s is being removed.", r.trial.Namespace)
		}
	case kube.NotFound:
		r.missing = true
	case kube.Permissions:
	default:
		return "Whether the job namespace is there could not be read: " + bare(err) + "."
	}
	return ""
}

func (r *run) readCapacity(ctx context.Context) string {
	seen, err := capacity.Read(ctx, r.trial.Client, false)
	if err != nil {
		if kube.Classify(err) == kube.Permissions {
			return "" // the table of permissions says so
		}
		return "The capacity could not be read: " + bare(err) + "."
	}
	r.report.Capacity = seen.Capacity
	return ""
}

// judge gives the verdict on a connection of which every phase passed.
func (r *run) judge() {
	if r.stopped() {
		return
	}
	namespace := r.trial.Namespace
	if r.missing {
		if !r.t.o.MakesNamespaces || r.may("create", "namespaces") == no {
			r.failWith(kube.NotFound, 404, fmt.Sprintf("The namespace %s does not exist there, and the account may not make it.", namespace),
				"Make it: kubectl create namespace "+namespace+".")
			return
		}
		r.warn(fmt.Sprintf("The namespace %s does not exist there yet; it is made before the first Job.", namespace))
	}
	if k := r.report.Kueue; k != nil && k.Message != "" {
		if r.noQueue {
			r.failWith(kube.NotFound, 404, k.Message, "Make the queue, or name another one in the cluster's queue, or none.")
			return
		}
		r.warn(k.Message)
	}
	r.report.OK = true
	r.report.Message = "Jobs can run in " + namespace + "."
	if len(r.report.Permissions) > 0 && r.may("create", "jobs") == unknown {
		r.report.Message = "The cluster is reached and knows the account. Whether Jobs can run in " + namespace + " could not be checked."
	}
}

// may is the answer about a permission.
func (r *run) may(verb, resource string) string {
	for _, p := range r.report.Permissions {
		if p.Verb == verb && p.Resource == resource {
			return p.Allowed
		}
	}
	return unknown
}

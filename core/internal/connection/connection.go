// Package connection tests connections to clusters: the way that all work goes, from the provider to the Kubernetes API,
// one bounded phase after the other, and what jobs would find there. It changes nothing anywhere.
package connection

import (
	"context"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
)

// Clients makes a client of what a provider gave, as the registry of clients does.
type Clients interface {
	Try(row cluster.Cluster, conn kube.Connection) (*kube.Trial, error)
}

// Options configure a Tester. Connector and Clients are required.
type Options struct {
	// Connector asks the provider. An error of it that wraps a *problem.Error with fields refuses the config.
	Connector kube.Connector
	Clients   Clients
	// MakesNamespaces says that the server makes missing job namespaces where it may.
	MakesNamespaces bool
	// Phase bounds each phase and Total the whole test; defaults 10 s and 15 s. Phase is the shorter one, so that the
	// phase that hangs is named.
	Phase, Total time.Duration
}

// Tester is a cluster.Tester. It is safe for concurrent use; tests share nothing.
type Tester struct{ o Options }

var _ cluster.Tester = (*Tester)(nil)

// New returns a tester.
func New(o Options) *Tester {
	if o.Phase <= 0 {
		o.Phase = 10 * time.Second
	}
	if o.Total <= 0 {
		o.Total = 15 * time.Second
	}
	return &Tester{o: o}
}

// Test goes the whole way.
func (t *Tester) Test(ctx context.Context, c cluster.Cluster) cluster.Report {
	r := t.start(ctx, c)
	defer r.end()
	if r.open() && r.reach() && r.identify() && r.permit() {
		r.look()
		r.judge()
	}
	return r.result()
}

// Check stops at the policy.
func (t *Tester) Check(ctx context.Context, c cluster.Cluster) cluster.Report {
	r := t.start(ctx, c)
	defer r.end()
	if r.open() {
		r.report.OK = true
		r.report.Message = "The kubeconfig is allowed; the cluster was not asked."
		if r.trial.Backend {
			r.report.Message = "The server's own environment leads to a cluster; it was not asked."
		}
	}
	return r.result()
}

// run is one test.
type run struct {
	t       *Tester
	row     cluster.Cluster
	caller  context.Context
	ctx     context.Context // ends with the caller's, with a phase that takes too long, and with the whole
	began   time.Time
	steps   *steps
	trial   *kube.Trial // nil: not that far
	seen    seen        // on the way to the first answer
	headers bool        // of the first answer have come
	missing bool        // the job namespace is not there
	noQueue bool        // the queue of the row is not there
	report  cluster.Report
}

func (t *Tester) start(caller context.Context, row cluster.Cluster) *run {
	r := &run{t: t, row: row, caller: caller, began: time.Now()}
	ctx, cancel := context.WithCancelCause(caller)
	r.ctx, r.steps = ctx, newSteps(t.o.Phase, t.o.Total, cancel)
	return r
}

func (r *run) end() {
	r.steps.close()
	if r.trial != nil {
		r.trial.Close()
	}
}

func (r *run) result() cluster.Report {
	r.report.Phases = r.steps.list()
	r.report.TestedAt = r.began.UTC().Truncate(time.Microsecond)
	r.report.TookMS = millis(time.Since(r.began))
	return r.report
}

func (r *run) warn(text string) { r.report.Warnings = append(r.report.Warnings, text) }

// open asks the provider and has the policy judge what it gives.
func (r *run) open() bool {
	r.steps.begin("provider")
	conn, err := r.t.o.Connector.Connect(r.ctx, r.row)
	if err != nil {
		return r.failProvider(err)
	}
	r.steps.begin("policy")
	trial, err := r.t.o.Clients.Try(r.row, conn)
	if err != nil {
		return r.failPolicy(err)
	}
	r.steps.pass("")
	r.trial = trial
	r.report.Server, r.report.Namespace = trial.Server(), trial.Namespace
	r.report.Warnings = append(r.report.Warnings, trial.Warnings...)
	if at, _ := trial.Expires(); !at.IsZero() {
		r.report.ExpiresAt = new(at.UTC())
	}
	return true
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

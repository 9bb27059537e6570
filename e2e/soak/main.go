// Command soak runs many processes on several local clusters while a seeded driver breaks whatever can break, and proves
// afterwards, from the API servers' audit logs, the database, the archived logs and the notes of the pods themselves, that
// nothing was lost and nothing done twice.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/nagelfluh/nagelfluh/e2e/soak/plan"
)

// errViolated is returned when the checker found something.
var errViolated = errors.New("invariants are violated")

// options are the flags.
type options struct {
	plan.Options
	mutant string
	dir    string
	show   bool
	// retention is how long Jobs are kept after their end: their removal is part of what is soaked.
	retention time.Duration
	say       func(format string, args ...any)
}

// Mutants are damages that the soak does itself, to prove that the checker sees them.
const (
	mutantSecondJob = "second-job"
	mutantLostLine  = "lost-line"
)

func main() {
	o := options{retention: 20 * time.Second}
	flag.Uint64Var(&o.Seed, "seed", uint64(time.Now().UnixNano()), "number that the plan of processes and faults follows from; 0 is a seed like others")
	flag.DurationVar(&o.Duration, "duration", 10*time.Minute, "how long processes are submitted and things are broken")
	flag.IntVar(&o.Processes, "processes", 2000, "how many processes are submitted")
	flag.IntVar(&o.Clusters, "clusters", 3, "how many local clusters")
	flag.IntVar(&o.Replicas, "replicas", 1, "how many servers; several are on a PostgreSQL of their own")
	flag.BoolVar(&o.Calm, "calm", false, "break nothing")
	flag.BoolVar(&o.Patient, "patient", false, "cancel nothing")
	flag.StringVar(&o.mutant, "mutant", "", "damage that the checker must find: second-job or lost-line; empty: none")
	flag.StringVar(&o.dir, "dir", "", "folder for everything, kept at the end; empty: a new one, removed when all is well")
	flag.BoolVar(&o.show, "plan", false, "print the faults and do nothing")
	flag.Parse()

	if o.show {
		for _, f := range o.Faults() {
			fmt.Println(f)
		}
		return
	}
	began := time.Now()
	o.say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	signals := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(os.Interrupt) { // who starts it in the background does not mean it when he interrupts something else
		signals = append(signals, os.Interrupt)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	context.AfterFunc(ctx, func() { o.say("stopping: %v", context.Cause(ctx)) })
	report, err := run(ctx, o)
	report.print(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func (o options) validate() error {
	switch {
	case o.Processes < 1 || o.Clusters < 1 || o.Clusters > 9 || o.Duration < time.Second:
		return errors.New("want --processes of 1 or more, --clusters of 1 to 9 and a --duration of 1s or more")
	case o.Replicas < 0 || o.Replicas > 9:
		return errors.New("want --replicas of 1 to 9")
	case !slices.Contains([]string{"", mutantSecondJob, mutantLostLine}, o.mutant):
		return fmt.Errorf("--mutant %q: want %s or %s", o.mutant, mutantSecondJob, mutantLostLine)
	}
	return nil
}

// run does the whole soak. The report holds what there is also when it ends early.
func run(ctx context.Context, o options) (report, error) {
	out := report{options: o}
	if err := o.validate(); err != nil {
		return out, err
	}
	dir, keep := o.dir, o.dir != ""
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "nagelfluh-soak-"); err != nil {
			return out, err
		}
	}
	o.say("seed %d: %d processes in %s on %d clusters; files are in %s", o.Seed, o.Processes, o.Duration, o.Clusters, dir)
	err := soak(ctx, o, dir, &out)
	if err == nil && len(out.result.Violations) > 0 {
		err = errViolated
	}
	if err == nil && !keep {
		return out, os.RemoveAll(dir)
	}
	o.say("everything is kept in %s", dir)
	return out, err
}

// soak starts everything, lets the plan happen, waits until all has settled, and checks.
func soak(ctx context.Context, o options, dir string, out *report) error {
	w, err := start(ctx, o, dir)
	if err != nil {
		return err
	}
	defer w.close()

	c, err := w.happen(ctx, out)
	if err != nil {
		return err
	}
	o.say("all is submitted and nothing is broken any more; waiting until it has settled")
	if err := w.settle(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		o.say("not settled, so there will be violations: %v", err)
	}
	in, err := w.collect(ctx, c)
	if err != nil {
		return err
	}
	out.judge(in)
	return nil
}

// happen lets the plan happen and returns when nothing is broken any more.
func (w *world) happen(ctx context.Context, out *report) (*client, error) {
	began := time.Now()
	d, c := newDriver(w, began), newClient(w, began)
	hurt, calm := context.WithCancel(ctx)
	defer calm()
	broken := make(chan error, 1)
	go func() { broken <- d.run(hurt) }()
	if err := c.run(ctx); err != nil {
		calm()
		return c, errors.Join(err, <-broken)
	}
	if err := <-broken; err != nil {
		return c, err
	}
	out.faults, out.client = d.counts(), c.counts()
	return c, nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// defaultCluster is the name of the row that is there from the start.
const defaultCluster = "Default Cluster"

// job is one process of the demo, what should come of it, and what did.
type job struct {
	name    string
	what    string
	args    []string // of `nagelfluh run`
	cancel  bool     // cancel it once it runs
	cluster string   // name of the cluster it must land on; empty: nowhere
	state   string
	exit    int // of `nagelfluh run`
	out     string

	version version
	stdout  string
	gotExit int
}

type version struct {
	ID          string
	ProcessName string `json:"process_name"`
	State       string
	Attempt     struct {
		ClusterName string `json:"cluster_name"`
		Reason      string
		ExitCode    *int   `json:"exit_code"`
		JobName     string `json:"job_name"`
		Namespace   string
	}
}

func (d *demo) plan() []*job {
	jobs := []*job{
		{name: "hello", what: "plain", cluster: defaultCluster, state: "succeeded", out: "hello from hello\nline 1\nline 2\nline 3\nbye\n",
			args: []string{"--image", "busybox", "--", "sh", "-c", "echo hello from $NAME; for i in 1 2 3; do sleep 0.3; echo line $i; done; echo bye"}},
		{name: "broken", what: "fails with 3", cluster: defaultCluster, state: "failed", exit: 3, out: "about to fail\n",
			args: []string{"--image", "busybox", "--", "sh", "-c", "echo about to fail; exit 3"}},
		{name: "endless", what: "cancelled while it runs", cluster: defaultCluster, state: "cancelled", exit: 130, out: "started\n", cancel: true,
			args: []string{"--image", "busybox", "--", "sh", "-c", "echo started; exec sleep 3600"}},
		{name: "too-big", what: "asks for 1000 GPUs", state: "failed", exit: 1,
			args: []string{"--image", "busybox", "--gpus", "1000", "--", "true"}},
	}
	if d.gpu {
		jobs = append(jobs, &job{name: "train", what: "asks for 2 GPUs", cluster: "gpu", state: "succeeded", out: "training on 2 GPUs\n",
			args: []string{"--image", "busybox", "--gpus", "2", "--", "sh", "-c", "echo training on 2 GPUs"}})
	}
	for _, j := range jobs {
		j.args = append([]string{"run", "--name", j.name, "--env", "NAME=" + j.name}, j.args...)
	}
	return jobs
}

// submit runs every job as a user would, all at once, and shows the log of the first one as it comes.
func (d *demo) submit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	d.jobs = d.plan()
	say("submitting %d processes; this is the live log of the first", len(d.jobs))
	fmt.Printf("\n$ nagelfluh %s\n", strings.Join(d.jobs[0].args, " "))

	var wg sync.WaitGroup
	errs := make([]error, len(d.jobs))
	for i, j := range d.jobs {
		wg.Go(func() {
			cmd := d.server.Command(ctx, j.args...)
			var out, notes bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &notes
			if i == 0 {
				cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, os.Stdout), io.MultiWriter(&notes, os.Stdout)
			}
			err := cmd.Run()
			j.stdout, j.gotExit = out.String(), stack.ExitCode(err)
			if j.gotExit < 0 {
				errs[i] = fmt.Errorf("nagelfluh %s: %w: %s", strings.Join(j.args, " "), err, notes.String())
			}
		})
		if j.cancel {
			wg.Go(func() {
				if err := d.cancelWhenRunning(ctx, j); err != nil {
					errs[i] = err
				}
			})
		}
	}
	wg.Wait()
	fmt.Println()
	return errors.Join(append(errs, d.read(ctx))...)
}

func (d *demo) cancelWhenRunning(ctx context.Context, j *job) error {
	err := stack.Until(ctx, j.name+" runs", func() (bool, error) {
		v, err := d.find(ctx, j.name)
		return err == nil && v.State == "running", err
	})
	if err != nil {
		return err
	}
	_, err = d.server.CLI(ctx, "cancel", j.name)
	return err
}

func (d *demo) find(ctx context.Context, name string) (version, error) {
	var list struct{ Items []version }
	if err := d.server.Get(ctx, "/versions?project=default&limit=100", &list); err != nil {
		return version{}, err
	}
	for _, v := range list.Items {
		if v.ProcessName == name {
			return v, nil
		}
	}
	return version{}, fmt.Errorf("no version of process %s is listed", name)
}

func (d *demo) read(ctx context.Context) error {
	for _, j := range d.jobs {
		var err error
		if j.version, err = d.find(ctx, j.name); err != nil {
			return err
		}
	}
	return nil
}

// show prints the table, the logs as they are stored, and why the GPU job went where it went.
func (d *demo) show(ctx context.Context) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "PROCESS\tWHAT IT IS\tCLUSTER\tSTATE\tEXIT\tWHY")
	for _, j := range d.jobs {
		where, exit := j.version.Attempt.ClusterName, "-"
		if where == "" {
			where = "-"
		}
		if j.version.Attempt.ExitCode != nil {
			exit = strconv.Itoa(*j.version.Attempt.ExitCode)
		}
		why, err := d.why(ctx, j)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", j.name, j.what, where, j.version.State, exit, why)
	}
	_ = w.Flush()

	fmt.Println()
	for _, j := range d.jobs {
		if j.cluster == "" {
			continue
		}
		out, err := d.server.CLI(ctx, "logs", j.name)
		if err != nil {
			return err
		}
		j.stdout = out
		fmt.Printf("$ nagelfluh logs %s\n%s", j.name, out)
	}
	shown := "too-big"
	if d.gpu {
		shown = "train"
	}
	out, err := d.server.CLI(ctx, "explain", shown)
	if err != nil {
		return err
	}
	fmt.Printf("\n$ nagelfluh explain %s\n%s\n", shown, out)
	return nil
}

// why is the sentence of the decision, and of the end where that says more.
func (d *demo) why(ctx context.Context, j *job) (string, error) {
	var e struct {
		Attempts []struct {
			Decisions []struct {
				Plugin string
				Reason string
			}
		}
	}
	if err := d.server.Get(ctx, "/versions/"+j.version.ID+"/explain", &e); err != nil {
		return "", err
	}
	why := ""
	for _, a := range e.Attempts {
		for _, dec := range a.Decisions {
			why = dec.Reason
			if dec.Plugin != "" {
				why = dec.Plugin + ": " + why
			}
		}
	}
	return why, nil
}

// check holds what happened against what should have.
func (d *demo) check(ctx context.Context) error {
	var wrong []error
	bad := func(j *job, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%s: %s", j.name, fmt.Sprintf(format, args...)))
	}
	for _, j := range d.jobs {
		if j.version.Attempt.ClusterName != j.cluster {
			bad(j, "is on cluster %q, should be on %q", j.version.Attempt.ClusterName, j.cluster)
		}
		if j.version.State != j.state {
			bad(j, "is %s (%s), should be %s", j.version.State, j.version.Attempt.Reason, j.state)
		}
		if j.gotExit != j.exit {
			bad(j, "`nagelfluh run` exited with %d, should exit with %d", j.gotExit, j.exit)
		}
		if j.stdout != j.out {
			bad(j, "the log is %q, should be %q", j.stdout, j.out)
		}
		if err := d.checkAtCluster(ctx, j); err != nil {
			wrong = append(wrong, err)
		}
	}
	return errors.Join(wrong...)
}

// checkAtCluster asks the local clusters themselves, not the server: the Job is where it should be and nowhere else.
func (d *demo) checkAtCluster(ctx context.Context, j *job) error {
	if d.clusters == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for kube, row := range map[string]string{"main": defaultCluster, "gpu": "gpu"} {
		c, err := d.clusters.Client(kube)
		if err != nil {
			return err
		}
		list, err := c.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the Jobs of cluster %s: %w", kube, err)
		}
		found := false
		for _, k := range list.Items {
			found = found || k.Labels["nagelfluh.io/version"] == j.version.ID
		}
		// A cancelled one is gone; the others are kept for a while after their end.
		want := row == j.cluster && j.state != "cancelled"
		if found != want {
			return fmt.Errorf("%s: its Job in local cluster %s: %v, should be %v", j.name, kube, found, want)
		}
	}
	return nil
}

// tidy removes the Jobs of the demo from a cluster that is not the demo's own.
func (d *demo) tidy() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := stack.Client(d.own)
	if err != nil {
		return err
	}
	var errs []error
	background := metav1.DeletePropagationBackground
	for _, j := range d.jobs {
		a := j.version.Attempt
		if a.JobName == "" {
			continue
		}
		err := c.BatchV1().Jobs(a.Namespace).Delete(ctx, a.JobName, metav1.DeleteOptions{PropagationPolicy: &background})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove Job %s from your cluster: %w", a.JobName, err))
		}
	}
	for _, j := range d.jobs { // else the next demo, with a database of its own, finds the namespace held by this one
		ns := j.version.Attempt.Namespace
		if ns == "" {
			continue
		}
		if err := c.CoordinationV1().Leases(ns).Delete(ctx, "nagelfluh", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove the Lease from your cluster: %w", err))
		}
	}
	say("removed the demo's Jobs from your cluster; its namespace stays")
	return errors.Join(errs...)
}

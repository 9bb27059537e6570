package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/e2e/soak/check"
	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// patience is how long all may take to end, with its logs stored and its Jobs removed, when nothing is broken any more.
const patience = 4 * time.Minute

// settle waits until nothing changes any more.
func (w *world) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	db, err := check.Open(w.database())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // only read
	return stack.Until(ctx, "everything has ended", func() (bool, error) {
		pause(ctx, 500*time.Millisecond) // a look is not for free
		live, unstored, err := check.Unsettled(ctx, db)
		if err != nil || live+unstored > 0 {
			return false, fmt.Errorf("%d attempts have not ended, %d logs are not stored: %w", live, unstored, err)
		}
		for i, c := range w.direct {
			jobs, err := c.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
			if err != nil || len(jobs.Items) > btoi(w.o.mutant == mutantSecondJob) {
				return false, fmt.Errorf("cluster %s still has %d Jobs: %w", w.names[i], len(jobs.Items), err)
			}
		}
		return true, nil
	})
}

// collect stops the server and gathers the evidence.
func (w *world) collect(ctx context.Context, c *client) (check.Input, error) {
	in := check.Input{Wanted: c.wanted}
	errs := c.errs
	for _, s := range w.cores {
		s.stop()
		errs = append(errs, s.errs...)
	}
	for _, err := range errs {
		in.Trouble = append(in.Trouble, err.Error())
	}
	panics, err := w.panics()
	if err != nil {
		return in, err
	}
	in.Trouble = append(in.Trouble, panics...)
	in.Trouble = append(in.Trouble, w.leftBehind(ctx)...)

	db, err := check.Open(w.database())
	if err != nil {
		return in, err
	}
	defer func() { _ = db.Close() }() // only read
	if err := in.Rows(ctx, db); err != nil {
		return in, err
	}
	if w.o.mutant == mutantLostLine {
		if err := w.loseLine(in); err != nil {
			return in, err
		}
	}
	if err := in.Archive(w.archive()); err != nil {
		return in, err
	}
	if err := in.Witness(w.witness()); err != nil {
		return in, err
	}
	return in, w.histories(ctx, db, &in)
}

// histories reads what every cluster knows.
func (w *world) histories(ctx context.Context, db *sql.DB, in *check.Input) error {
	ids, err := check.ClusterIDs(ctx, db)
	if err != nil {
		return err
	}
	in.GPU, in.Clusters = ids["gpu"], map[string]*check.Cluster{}
	for i := range w.names {
		if in.Clusters[ids[row(i)]], err = w.history(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// history is what a cluster's API server logged, and what there is now.
func (w *world) history(ctx context.Context, i int) (*check.Cluster, error) {
	// The cluster takes its own files along when it ends; this name of the log stays.
	path := filepath.Join(w.dir, "audit-"+w.names[i]+".log")
	if err := os.Link(w.clusters.AuditLog(w.names[i]), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h, err := check.ReadAudit(w.names[i], file)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	jobs, err := w.direct[i].BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs.Items {
		h.LiveJob(string(j.UID), j.Namespace, j.Name, j.Labels)
	}
	pods, err := w.direct[i].CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			h.LivePod(string(p.UID), p.Name, p.Labels)
		}
	}
	return h, nil
}

// panics finds the server's last words.
func (w *world) panics() ([]string, error) {
	var raw []byte
	for _, c := range w.cores {
		one, err := os.ReadFile(c.log)
		if err != nil {
			return nil, err
		}
		raw = append(raw, one...)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "panic recovered") {
			out = append(out, "the server's log: "+strings.TrimSpace(line))
		}
	}
	return out, nil
}

// leftBehind finds plugins that outlived every server that started them.
func (w *world) leftBehind(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var left []string
	_ = stack.Until(ctx, "every plugin has ended", func() (bool, error) {
		left = nil
		exes, err := filepath.Glob("/proc/[0-9]*/exe")
		for _, exe := range exes {
			if to, err := os.Readlink(exe); err == nil && strings.HasPrefix(to, w.plugins()+"/") {
				left = append(left, "left behind: process "+filepath.Base(filepath.Dir(exe))+" "+filepath.Base(to))
			}
		}
		return len(left) == 0, err
	})
	return left
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/e2e/soak/check"
	"github.com/nagelfluh/nagelfluh/e2e/stack"
)

// secondJob makes by itself, while the server runs, what the server must never make: another Job of an attempt.
func (w *world) secondJob(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Duration)
	defer cancel()
	return stack.Until(ctx, "a second Job is made for some attempt", func() (bool, error) {
		list, err := w.direct[0].BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{Limit: 1, LabelSelector: "nagelfluh.io/attempt"})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		first := list.Items[0]
		err = w.makeJob(ctx, first.Name+"-2", first.Labels)
		return err == nil, err
	})
}

// makeJob makes a Job that the server did not make, with its labels.
func (w *world) makeJob(ctx context.Context, name string, from map[string]string) error {
	labels := map[string]string{}
	for _, label := range []string{"installation", "project", "version", "attempt"} {
		labels["nagelfluh.io/"+label] = from["nagelfluh.io/"+label]
	}
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	j.Spec.Template.Labels = labels
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	j.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Image: "busybox", Command: []string{"true"}}}
	if _, err := w.direct[0].BatchV1().Jobs(namespace).Create(ctx, j, metav1.CreateOptions{}); err != nil {
		return err
	}
	w.o.say("mutant: Job %s is another one of attempt %s", name, labels["nagelfluh.io/attempt"])
	return nil
}

// loseLine removes a line from the middle of an archived log, and has the manifest agree.
func (w *world) loseLine(in check.Input) error {
	for _, a := range in.Attempts {
		files, err := filepath.Glob(filepath.Join(w.archive(), a.ID, "*", "*", "main.log"))
		if err != nil || a.State != "succeeded" || len(files) == 0 {
			continue
		}
		raw, err := os.ReadFile(files[0])
		if err != nil {
			return err
		}
		lines := bytes.SplitAfter(raw, []byte("\n"))
		if len(lines) < 4 {
			continue
		}
		middle := len(lines) / 2
		whole := len(raw)
		raw = bytes.Join(append(append([][]byte{}, lines[:middle]...), lines[middle+1:]...), nil)
		if err := os.WriteFile(files[0], raw, 0o600); err != nil {
			return err
		}
		manifest := filepath.Join(w.archive(), a.ID, "manifest.json")
		text, err := os.ReadFile(manifest)
		if err != nil {
			return err
		}
		text = bytes.Replace(text, fmt.Appendf(nil, `"bytes": %d`, whole), fmt.Appendf(nil, `"bytes": %d`, len(raw)), 1)
		w.o.say("mutant: line %d of the log of attempt %s is removed", middle+1, a.ID)
		return os.WriteFile(manifest, text, 0o600)
	}
	return errors.New("mutant lost-line: no log with a line to lose")
}

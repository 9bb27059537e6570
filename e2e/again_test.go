package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that somebody deletes ends its Job, and a new attempt follows although the user allows no retries; the second time
// none is left. Every attempt keeps its own log.
func TestInfrastructureFailureIsTriedAgain(t *testing.T) {
	w := newWorld(t, nil)
	jobs := w.watchJobs()
	body := submission("again", 0, "sh", "-c", "echo here; sleep 600")
	body["spec"].(map[string]any)["infrastructure_retries"] = 1
	v := w.submit(body)
	pods := w.client("main").CoreV1().Pods(w.namespace)
	for number := 1; number <= 2; number++ {
		w.until(fmt.Sprintf("attempt %d runs and has printed", number), time.Minute, func() (bool, error) {
			now := w.get(v.ID)
			r, err := w.Do(w.ctx, http.MethodGet, fmt.Sprintf("/versions/%s/logs?follow=false&attempt=%d", v.ID, number), nil)
			if err != nil || now.State != "running" || now.Attempt.Number != number {
				return false, fmt.Errorf("attempt %d is %s: %w", now.Attempt.Number, now.State, err)
			}
			return strings.Contains(string(r.Body), "here"), nil
		})
		list, err := pods.List(w.ctx, metav1.ListOptions{LabelSelector: "nagelfluh.io/attempt=" + w.get(v.ID).Attempt.ID})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d pods of attempt %d: %v", len(list.Items), number, err)
		}
		if err := pods.Delete(w.ctx, list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	v = w.allEnded(time.Minute)[0]
	if v.State != "failed" || v.Attempt.ReasonCode != "pod-deleted" || v.Attempt.Number != 2 {
		t.Errorf("%+v", v)
	}
	if got := jobs.of(v.ID); len(got) != 2 {
		t.Errorf("%d Jobs, want one an attempt", len(got))
	}
	var explained struct {
		Attempts []struct {
			Attempt struct {
				Number     int
				State      string
				ReasonCode string `json:"reason_code"`
			}
		}
	}
	if err := w.Get(w.ctx, "/versions/"+v.ID+"/explain", &explained); err != nil {
		t.Fatal(err)
	}
	for i, a := range explained.Attempts {
		if a.Attempt.Number != i+1 || a.Attempt.State != "failed" || a.Attempt.ReasonCode != "pod-deleted" {
			t.Errorf("%+v", a)
		}
	}
	var timeline struct{ Items []happening }
	if err := w.Get(w.ctx, "/versions/"+v.ID+"/timeline", &timeline); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, e := range timeline.Items {
		kinds[e.Kind]++
	}
	if len(explained.Attempts) != 2 || kinds["retried"] != 1 || kinds["run-started"] != 2 || kinds["decided"] != 2 || kinds["submitted"] != 1 {
		t.Errorf("%d attempts, the timeline has %v", len(explained.Attempts), kinds)
	}
	r, err := w.Do(w.ctx, http.MethodGet, "/versions/"+v.ID+"/logs?follow=false&all_attempts=true", nil)
	if err != nil || strings.Count("\n"+string(r.Body), "\nhere\n") != 2 {
		t.Errorf("%v, the logs of all attempts: %s", err, r.Body)
	}
}

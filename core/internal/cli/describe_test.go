package cli

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// described plays a version that was refused for a while by two reasons in turn, ran, and failed.
func described(t *testing.T) []string {
	t.Helper()
	at := func(s int) time.Time {
		return time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local).Add(time.Duration(s) * time.Second)
	}
	n := 0
	e := func(s int, kind, state, message string, more object) object {
		n++
		out := object{"seq": n, "at": at(s), "kind": kind, "state": state, "message": message, "actor": "system", "attempt_number": 1, "cluster_id": "c", "cluster_name": "gpu"}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	items := []object{
		e(0, "submitted", "placing", "Submitted", object{"actor": "u1", "actor_name": "ada", "cluster_id": "", "cluster_name": ""}),
		e(1, "decided", "creating", "It has room.", object{"data": object{"outcome": "placed", "rule": "selected", "plugin": "selector-gpu"}}),
		e(1, "state", "creating", "It has room.", object{"data": object{"was": "placing"}}),
		e(2, "state", "queued", "The Job exists.", object{"data": object{"reason_code": "no-pod", "job": object{"namespace": "jobs", "name": "train-1"}}}),
	}
	for i := range 6 {
		items = append(items, e(3+i, "reason", "queued", []string{"No node takes the pod.", "The image cannot be pulled."}[i%2], nil))
	}
	items = append(items,
		e(20, "run-started", "running", "Run 1 started.", object{"data": object{"run": 1}}),
		e(20, "state", "running", "Running on node n.", nil),
		e(95, "state", "failed", "The work ended with exit code 3.", object{"data": object{"reason_code": "exit-code", "exit_code": 3}}))
	attempt := object{
		"id": "a1", "number": 1, "state": "failed", "reason_code": "exit-code", "reason": "The work ended with exit code 3.", "exit_code": 3, "runs": 1,
		"cluster_id": "c", "cluster_name": "gpu", "namespace": "jobs", "job_name": "train-1", "job_uid": "u-i-d",
		"created_at": at(0), "placed_at": at(1), "job_at": at(2), "started_at": at(20), "ended_at": at(95),
	}
	v := object{
		"id": "v1", "number": 7, "process_name": "train", "state": "failed", "submitted_by": "u1", "created_at": at(0), "attempt": attempt,
		"spec": object{"image": "team/train:1", "command": []string{"python", "train.py", "a b"}, "limits": object{"nvidia.com/gpu": "2"}},
	}
	return server(t, map[string]http.HandlerFunc{
		"GET /versions/v1":         answer(200, v),
		"GET /versions/v1/explain": answer(200, object{"version": v, "attempts": []object{{"attempt": attempt, "decisions": []object{}}}}),
		"GET /versions/v1/timeline": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("after") == "" {
				answer(200, object{"items": items[:5], "next_after": 5})(w, r)
				return
			}
			answer(200, object{"items": items[5:]})(w, r)
		},
		"GET /versions/v1/events": func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("Last-Event-ID"); got != "13" {
				t.Errorf("followed behind %q", got)
			}
			events(w, "id: 14\nevent: reachable\ndata: {\"seq\":14,\"kind\":\"reachable\",\"message\":\"It answers again.\",\"at\":\"2026-03-01T12:00:00Z\"}\n\nevent: end\ndata: {}\n\n")
		},
	})
}

func TestDescribe(t *testing.T) {
	code, out, errs := execute(t, described(t), "", "describe", "v1")
	want := strings.TrimLeft(`
train, version 7
  Version:      v1
  Submitted:    2026-03-01 12:00:00 by ada
  State:        failed, exit code 3
  Reason:       The work ended with exit code 3. (exit-code)

Runs
  Image:        team/train:1
  Command:      python train.py "a b"
  Limits:       nvidia.com/gpu=2

Attempt 1: failed, exit code 3
  Reason:       The work ended with exit code 3. (exit-code)
  Cluster:      gpu
  Namespace:    jobs
  Job:          train-1
  UID:          u-i-d
  Runs:         1
  Begun:        2026-03-01 12:00:00
  Placed:       2026-03-01 12:00:01, after 1s
  Job made:     2026-03-01 12:00:02, after 2s
  Started:      2026-03-01 12:00:20, after 20s
  Ended:        2026-03-01 12:01:35, after 1m35s
  Took:         1m15s from start to end

Timeline
  TIME                 AFTER   TRY  WHAT                 BY   SAYS
  2026-03-01 12:00:00  +0s     1    submitted            ada  -
  2026-03-01 12:00:01  +1s     1    placed on gpu        -    It has room. (by plugin selector-gpu)
  2026-03-01 12:00:02  +2s     1    queued               -    The Job exists. Job jobs/train-1. (no-pod)
  2026-03-01 12:00:03  +3s     1    still queued         -    No node takes the pod. [3 times, the last at 12:00:07]
  2026-03-01 12:00:04  +4s     1    still queued         -    The image cannot be pulled. [3 times, the last at 12:00:08]
  2026-03-01 12:00:20  +20s    1    run 1 started        -    -
  2026-03-01 12:00:20  +20s    1    running              -    Running on node n.
  2026-03-01 12:01:35  +1m35s  1    failed, exit code 3  -    The work ended with exit code 3. (exit-code)
`, "\n")
	if d := cmp.Diff(want, out); code != 0 || d != "" {
		t.Errorf("exit code %d, %s\n-want +got\n%s", code, errs, d)
	}
}

func TestDescribeForProgramsLeavesNothingOut(t *testing.T) {
	code, out, _ := execute(t, described(t), "", "describe", "v1", "-o", "json")
	if n := len(regexp.MustCompile(`"seq"`).FindAllString(out, -1)); code != 0 || n != 13 {
		t.Errorf("exit code %d, %d events of 13", code, n)
	}
	if code, _, _ := execute(t, described(t), "", "describe", "v1", "-o", "json", "--follow"); code != ExitUsage {
		t.Errorf("exit code %d", code)
	}
}

func TestDescribeFollows(t *testing.T) {
	code, out, errs := execute(t, described(t), "", "describe", "v1", "--follow")
	if code != 0 || !strings.HasSuffix(out, "It answers again.\n") {
		t.Errorf("exit code %d, %s: %s", code, errs, out)
	}
}

func TestProcessesListForPeople(t *testing.T) {
	v := func(name, reason string) object {
		return object{"id": "v1", "number": 1, "process_name": name, "state": "queued", "created_at": time.Now(), "attempt": object{"cluster_name": "gpu", "reason": reason}}
	}
	list := func(answers object) (string, string) {
		_, out, errs := execute(t, server(t, map[string]http.HandlerFunc{"GET /versions": answer(200, answers)}), "", "processes", "list", "--limit", "1")
		return out, errs
	}
	out, errs := list(object{"items": []object{}})
	if out != "" || !strings.Contains(errs, `project "default" has no versions yet`) {
		t.Errorf("none: %q, %q", out, errs)
	}
	out, errs = list(object{"items": []object{v(strings.Repeat("ü", 60), "No node.")}, "next_cursor": "x"})
	if want := "v1       " + strings.Repeat("ü", 39) + "…  1   queued  -     gpu      0s   No node."; !strings.Contains(out, want) || !strings.Contains(errs, "there are more") {
		t.Errorf("one with a long name: %q, %q", out, errs)
	}
	if got := fit("VERSION  REASON\nv1       a long reason\n", 14); got != "VERSION  REAS…\nv1       a lo…\n" {
		t.Errorf("narrow: %q", got)
	}
}

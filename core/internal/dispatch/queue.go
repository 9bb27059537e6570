package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/evidence"
	"github.com/nagelfluh/nagelfluh/core/internal/job"
	"github.com/nagelfluh/nagelfluh/core/internal/kube"
	"github.com/nagelfluh/nagelfluh/core/internal/permission"
)

// jobUIDLabel is what Kueue marks the Workload of a Job with.
const jobUIDLabel = "kueue.x-k8s.io/job-uid"

// What a reason needs of Kueue's lists; its versions agree on it.
type (
	named struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	localQueues struct {
		Items []named `json:"items"`
	}
	workloads struct {
		Items []struct {
			named
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	// pendingWorkloads is the answer of the visibility API, where that is served.
	pendingWorkloads struct {
		Items []struct {
			named
			Position int32 `json:"positionInLocalQueue"`
		} `json:"items"`
	}
)

// queueOf reads what Kueue says of a suspended Job. What the account may not read is no error.
func (w *worker) queueOf(ctx context.Context, j *batchv1.Job) (*evidence.Queue, error) {
	// The list of all groups: of one that is not there no API server gives a proper answer.
	var groups metav1.APIGroupList
	if denied, err := w.kueue(ctx, "/apis", nil, &groups); denied {
		return &evidence.Queue{Unread: true}, nil
	} else if err != nil {
		return nil, err
	}
	version := versionOf(groups, permission.Kueue)
	if version == "" {
		return &evidence.Queue{Missing: true}, nil
	}
	in := fmt.Sprintf("/apis/%s/namespaces/%s/", version, j.Namespace)
	var list workloads
	if denied, err := w.kueue(ctx, in+"workloads", url.Values{"labelSelector": {jobUIDLabel + "=" + string(j.UID)}, "limit": {"1"}}, &list); denied {
		return &evidence.Queue{Unread: true}, nil
	} else if err != nil {
		return nil, err
	}
	q, queue := &evidence.Queue{}, j.Labels[job.LabelQueue]
	if len(list.Items) > 0 {
		q.Workload = append([]metav1.Condition{}, list.Items[0].Status.Conditions...)
		if reserved(q.Workload) {
			return q, nil
		}
	}
	var queues localQueues
	if denied, err := w.kueue(ctx, in+"localqueues", nil, &queues); err != nil && !denied {
		return nil, err
	} else if !denied {
		q.NoLocalQueue = !slices.ContainsFunc(queues.Items, func(i named) bool { return i.Metadata.Name == queue })
	}
	if seen := versionOf(groups, permission.KueueVisibility); seen != "" && len(list.Items) > 0 && !q.NoLocalQueue {
		q.Position = w.position(ctx, fmt.Sprintf("/apis/%s/namespaces/%s/localqueues/%s/pendingworkloads", seen, j.Namespace, queue), list.Items[0].Metadata.Name)
	}
	return q, nil
}

func versionOf(groups metav1.APIGroupList, name string) string {
	for _, g := range groups.Groups {
		if g.Name == name {
			return g.PreferredVersion.GroupVersion
		}
	}
	return ""
}

// position asks how many are before the Workload in its queue; zero: not known.
func (w *worker) position(ctx context.Context, path, name string) int32 {
	var pending pendingWorkloads
	if _, err := w.kueue(ctx, path, url.Values{"limit": {"1000"}}, &pending); err != nil {
		return 0
	}
	for _, item := range pending.Items {
		if item.Metadata.Name == name {
			return item.Position + 1
		}
	}
	return 0
}

// kueue reads JSON. denied says that it is not there, or not for us to read.
func (w *worker) kueue(ctx context.Context, path string, query url.Values, into any) (denied bool, err error) {
	err = w.call(ctx, "get-queue", func(ctx context.Context, c *kube.Client) error {
		q := c.Clientset.BatchV1().RESTClient().Get().MaxRetries(0).AbsPath(path).SetHeader("Accept", "application/json")
		for key, values := range query {
			q = q.Param(key, values[0])
		}
		raw, err := q.Do(ctx).Raw()
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, into)
	})
	if err == nil {
		return false, nil
	}
	class := kube.Classify(err)
	return class == kube.Permissions || class == kube.NotFound, fmt.Errorf("read %s: %w", path, err)
}

func reserved(conditions []metav1.Condition) bool {
	return slices.ContainsFunc(conditions, func(c metav1.Condition) bool {
		return c.Type == "QuotaReserved" && c.Status == metav1.ConditionTrue
	})
}

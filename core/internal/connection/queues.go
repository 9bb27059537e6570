package connection

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/permission"
)

// maxQueues bounds what a report lists.
const maxQueues = 100

// localQueues is as much of Kueue's list as a report needs. Its versions agree on it.
type localQueues struct {
	Items []struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec struct {
			ClusterQueue string `json:"clusterQueue"`
		} `json:"spec"`
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	} `json:"items"`
}

// readKueue finds out whether Kueue is there and which queues the namespace has, and looks for the one of the row.
func (r *run) readKueue(ctx context.Context) string {
	queue, namespace := r.row.QueueName, r.trial.Namespace
	var group metav1.APIGroup
	switch err := r.get(ctx, "/apis/"+permission.Kueue, &group); {
	case err == nil:
	case apierrors.IsNotFound(err): // said in plain text: no API server has a Status for groups that it does not know
		r.report.Kueue = &cluster.KueueReport{}
		if queue != "" {
			r.noQueue = true
			r.report.Kueue.Message = fmt.Sprintf("Kueue is not installed there: Jobs in the queue %s would wait for ever.", queue)
		}
		return ""
	case apierrors.IsForbidden(err):
		return ""
	default:
		return "Whether Kueue is installed could not be read: " + bare(err) + "."
	}
	report := &cluster.KueueReport{Installed: true}
	r.report.Kueue = report
	var list localQueues
	path := fmt.Sprintf("/apis/%s/namespaces/%s/localqueues", group.PreferredVersion.GroupVersion, namespace)
	switch err := r.get(ctx, path, &list); {
	case err == nil:
	case apierrors.IsForbidden(err):
		if queue != "" {
			report.Message = fmt.Sprintf("Whether the queue %s is there could not be checked: the account may not read queues.", queue)
		}
		return ""
	default:
		return "The queues could not be read: " + bare(err) + "."
	}
	found := queue == ""
	for _, item := range list.Items {
		q := cluster.QueueReport{Name: item.Metadata.Name, ClusterQueue: item.Spec.ClusterQueue}
		for _, c := range item.Status.Conditions {
			if c.Type == "Active" {
				q.Active, q.Message = c.Status == metav1.ConditionTrue, c.Message
			}
		}
		if q.Active {
			q.Message = ""
		}
		if q.Name == queue {
			found = true
			if !q.Active {
				report.Message = strings.TrimSpace(fmt.Sprintf("The queue %s is not active: Jobs wait until it is. %s", queue, sentence(q.Message)))
			}
		}
		if len(report.Queues) < maxQueues {
			report.Queues = append(report.Queues, q)
		}
	}
	if !found {
		r.noQueue = true
		report.Message = fmt.Sprintf("The queue %s does not exist in the namespace %s: Jobs would wait for ever.", queue, namespace)
	}
	return ""
}

// get reads JSON.
func (r *run) get(ctx context.Context, path string, into any) error {
	raw, err := r.trial.Probe().Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// record is what is read of one line of an audit log.
type record struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Status struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Request  struct {
		Preconditions struct {
			UID string `json:"uid"`
		} `json:"preconditions"`
	} `json:"requestObject"`
	Response object `json:"responseObject"`
}

// object is what is read of a Job, a pod, or the status that answers a delete.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		UID       string            `json:"uid"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Details struct {
		UID string `json:"uid"`
	} `json:"details"`
	Spec struct {
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

type status struct {
	Phase      string `json:"phase"`
	Conditions []struct {
		Type   string `json:"type"`
		Status string `json:"status"`
	} `json:"conditions"`
	Containers []struct {
		State map[string]json.RawMessage `json:"state"`
	} `json:"containerStatuses"`
}

const attemptLabel = "nagelfluh.io/attempt"

// ReadAudit follows an audit log with objects: every Job and every pod that was ever made and what became of it.
func ReadAudit(name string, r io.Reader) (*Cluster, error) {
	c := &Cluster{Name: name, Jobs: map[string]*Job{}, Pods: map[string]*Pod{}}
	lines := bufio.NewReaderSize(r, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return c, nil // a line without its end is being written, or was when the API server was killed
		}
		if err != nil {
			return nil, fmt.Errorf("audit log of %s: %w", name, err)
		}
		var e record
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("audit log of %s, line %d: %w", name, n, err)
		}
		if e.Status.Code/100 != 2 {
			continue
		}
		switch e.Object.Resource {
		case "jobs":
			c.job(e)
		case "pods":
			c.pod(e)
		}
	}
}

func (c *Cluster) job(e record) {
	uid := e.Response.Metadata.UID
	if e.Response.Kind == "Status" {
		uid = e.Response.Details.UID
	}
	if uid == "" {
		return // deletecollection, which nobody here uses
	}
	j := c.Jobs[uid]
	if j == nil {
		// The create may have been answered after the first change was logged; it fills in the rest.
		j = &Job{UID: uid, Name: e.Object.Name, Namespace: e.Object.Namespace}
		c.Jobs[uid] = j
	}
	if e.Response.Kind == "Job" {
		j.Name, j.Namespace = e.Response.Metadata.Name, e.Response.Metadata.Namespace
		j.Attempt = e.Response.Metadata.Labels[attemptLabel]
	}
	switch e.Verb {
	case "create":
		j.Created = e.Received
	case "delete":
		j.Deletes = append(j.Deletes, Delete{At: e.Received, User: e.User.Username, UID: e.Request.Preconditions.UID})
		return
	}
	for _, cond := range parse(e.Response).Conditions {
		switch {
		case cond.Status != "True":
		case cond.Type == "Complete" && j.Complete.IsZero():
			j.Complete = e.Received
		case cond.Type == "Failed" && j.Failed.IsZero():
			j.Failed = e.Received
		}
	}
}

func (c *Cluster) pod(e record) {
	o := e.Response
	if o.Kind != "Pod" || o.Metadata.UID == "" {
		return
	}
	p := c.Pods[o.Metadata.UID]
	if p == nil {
		p = &Pod{UID: o.Metadata.UID}
		c.Pods[p.UID] = p
	}
	p.Name, p.Attempt = o.Metadata.Name, o.Metadata.Labels[attemptLabel]
	if e.Verb == "create" && e.Object.Subresource == "" {
		p.Created = e.Received
	}
	s := parse(o)
	for _, container := range s.Containers {
		if (container.State["running"] != nil || container.State["terminated"] != nil) && p.Running.IsZero() {
			p.Running = e.Received
		}
	}
	// A delete by the node, or of a pod that never had one, is the end; any other only asks for it.
	gone := e.Verb == "delete" && (strings.Contains(e.User.Username, "node") && !strings.Contains(e.User.Username, "controller") || o.Spec.NodeName == "")
	if (s.Phase == "Succeeded" || s.Phase == "Failed" || gone) && p.Over.IsZero() {
		p.Over = e.Received
	}
}

// parse reads the status of a Job or a pod; that of a Status object is a word.
func parse(o object) status {
	var s status
	if len(o.Status) > 0 && o.Status[0] == '{' {
		_ = json.Unmarshal(o.Status, &s) // what is no status says nothing
	}
	return s
}

// LiveJob notes a Job that is there at the end, also one whose making was not logged.
func (c *Cluster) LiveJob(uid, namespace, name string, labels map[string]string) {
	j := c.Jobs[uid]
	if j == nil {
		j = &Job{UID: uid, Name: name, Namespace: namespace, Attempt: labels[attemptLabel]}
		c.Jobs[uid] = j
	}
	j.Live = true
}

// LivePod notes a pod that is there at the end and has not ended.
func (c *Cluster) LivePod(uid, name string, labels map[string]string) {
	p := c.Pods[uid]
	if p == nil {
		p = &Pod{UID: uid, Name: name, Attempt: labels[attemptLabel]}
		c.Pods[uid] = p
	}
	p.Alive = true
}

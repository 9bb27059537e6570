package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// AuditEvent is one request that changed a Job, Pod, Secret or Lease.
type AuditEvent struct {
	Verb      string `json:"verb"` // create, update, patch, delete, deletecollection
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	Object struct {
		Resource  string `json:"resource"` // jobs, pods, secrets, leases
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
	Done     time.Time `json:"stageTimestamp"`
}

// AuditEvents returns what the API server has logged so far: the truth about
// what was created, whatever was deleted since.
func (c *Cluster) AuditEvents() ([]AuditEvent, error) {
	text, err := os.ReadFile(c.AuditLog)
	if os.IsNotExist(err) {
		return nil, nil // nothing was logged yet
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: read its audit log: %w", c.Name, err)
	}
	// A line that is being written is not there yet.
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	var events []AuditEvent
	for line := range bytes.Lines(text) {
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("cluster %s: read its audit log: %w", c.Name, err)
		}
		events = append(events, event)
	}
	return events, nil
}

// Created returns how many objects of a resource, as "jobs", were created in a
// namespace.
func (c *Cluster) Created(resource, namespace string) (int, error) {
	events, err := c.AuditEvents()
	count := 0
	for _, event := range events {
		if event.Verb == "create" && event.Object.Resource == resource &&
			event.Object.Namespace == namespace && event.Response.Code == 201 {
			count++
		}
	}
	return count, err
}

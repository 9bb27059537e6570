// Package project holds the projects that own processes.
package project

import (
	"errors"
	"time"
)

// Project owns processes. Its members see it and submit in it; admins see every project.
type Project struct {
	ID          string
	Name        string // unique; letters, digits, "-", "_" and "."
	Labels      map[string]string
	HomeCluster string   // id of its own default cluster; empty: none
	Allowed     []string // ids of the clusters that it may use; nil: all
	Members     []string // user ids, sorted
	Storage     string   // id of the storage backend of its data; empty: none
	CreatedAt   time.Time
	UpdatedAt   time.Time
	Revision    int64 // counts the changes
}

// Sentinel errors of the package; compare with errors.Is.
var (
	ErrNotFound = errors.New("project not found")
	ErrNameUsed = errors.New("project name is in use")
	ErrStale    = errors.New("project changed meanwhile")
)

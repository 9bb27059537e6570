package kube

import (
	"net/http"
	"strings"
	"time"
)

// Call is one request to a cluster, as metrics see it.
type Call struct {
	ClusterID string
	Verb      string // get, list, watch, create, update, patch, delete, log
	Resource  string // jobs, pods, nodes, …; "other" for paths that name none
	Code      int    // HTTP status; 0: no answer
	Class     Class
	Took      time.Duration // to the headers of the answer
	RequestID string        // of the API request that it serves; empty: of none
}

// Observer is told of every request, also of retried ones. It must not block.
type Observer interface{ Observe(Call) }

// kindOf tells verb and resource of a request from its path. Names of objects never get into it: it labels metrics.
func kindOf(req *http.Request) (verb, resource string) {
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	// The server's path may lie below a prefix: the API begins at the first "api" or "apis".
	for i, p := range parts {
		if p == "api" || p == "apis" {
			parts = parts[i:]
			break
		}
	}
	skip := 2 // api/v1
	if parts[0] == "apis" {
		skip = 3 // apis/batch/v1
	}
	rest := parts[min(skip, len(parts)):]
	if parts[0] != "api" && parts[0] != "apis" || len(rest) == 0 {
		return strings.ToLower(req.Method), "other"
	}
	if rest[0] == "namespaces" && len(rest) > 2 {
		rest = rest[2:]
	}
	resource = rest[0]
	query := req.URL.Query()
	switch req.Method {
	case http.MethodGet:
		switch {
		case query.Get("watch") == "true" || query.Get("watch") == "1":
			verb = "watch"
		case len(rest) > 2 && rest[2] == "log":
			verb = "log"
		case len(rest) > 1:
			verb = "get"
		default:
			verb = "list"
		}
	case http.MethodPost:
		verb = "create"
	case http.MethodPut:
		verb = "update"
	default:
		verb = strings.ToLower(req.Method)
	}
	return verb, resource
}

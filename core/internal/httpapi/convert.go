package httpapi

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/nagelfluh/nagelfluh/core/internal/auth"
	"github.com/nagelfluh/nagelfluh/core/internal/cluster"
	"github.com/nagelfluh/nagelfluh/core/internal/event"
	"github.com/nagelfluh/nagelfluh/core/internal/httpapi/gen"
	"github.com/nagelfluh/nagelfluh/core/internal/placement"
	"github.com/nagelfluh/nagelfluh/core/internal/plugin"
	"github.com/nagelfluh/nagelfluh/core/internal/process"
	"github.com/nagelfluh/nagelfluh/core/internal/project"
	"github.com/nagelfluh/nagelfluh/core/internal/reason"
)

// namer puts the names of clusters beside their ids. It reads the clusters at the first need.
type namer struct {
	ctx   context.Context
	store Store
	names map[string]string
	all   *names // those of removed clusters too
}

func (s *Server) namer(ctx context.Context) *namer {
	return &namer{ctx: ctx, store: s.o.Store, all: s.names}
}

// cluster returns a name; empty: not known. A failed read costs only the name.
func (n *namer) cluster(id string) string {
	if id == "" {
		return ""
	}
	if n.names == nil {
		n.names = map[string]string{}
		all, err := n.store.Clusters(n.ctx)
		if err != nil {
			return ""
		}
		for _, c := range all {
			n.names[c.ID] = c.Name
		}
	}
	if name, found := n.names[id]; found {
		return name
	}
	return n.all.cluster(n.ctx, id)
}

func (n *namer) version(v process.Version) gen.Version {
	return gen.Version{
		ID: v.ID, ProjectID: v.ProjectID, ProcessID: v.ProcessID, ProcessName: v.ProcessName, ProcessType: v.ProcessType,
		ProcessLabels: v.ProcessLabels, Number: v.Number, Spec: toSpec(v.Spec), State: gen.State(v.State()),
		SubmittedBy: v.SubmittedBy, Key: v.IdempotencyKey, CreatedAt: v.CreatedAt, Attempt: n.attempt(v.Attempt),
	}
}

func (n *namer) attempt(a process.Attempt) gen.Attempt {
	out := gen.Attempt{
		ID: a.ID, Number: a.Number, State: gen.State(a.State), ReasonCode: a.ReasonCode, Reason: a.Reason, ReasonClass: string(reason.ClassOf(a.ReasonCode)),
		ClusterID: a.ClusterID, ClusterName: n.cluster(a.ClusterID), Namespace: a.Namespace, JobName: a.JobName, JobUID: a.JobUID,
		ExitCode: a.ExitCode, Runs: a.Runs, LogsStored: a.LogsStored,
		UnreachableSince: orZero(a.UnreachableSince), CancelRequestedAt: orZero(a.CancelRequestedAt),
		CreatedAt: a.CreatedAt, PlacedAt: orZero(a.PlacedAt), JobAt: orZero(a.JobAt), StartedAt: orZero(a.StartedAt),
		EndedAt: orZero(a.EndedAt), UpdatedAt: a.UpdatedAt,
	}
	if a.State == process.Placing || a.State == process.Creating {
		out.NextTryAt = a.NextTryAt
	}
	return out
}

func (n *namer) decision(d placement.Decision) gen.Decision {
	return gen.Decision{
		ID: d.ID, AttemptID: d.AttemptID, At: d.At, Outcome: gen.DecisionOutcome(d.Outcome), Rule: gen.DecisionRule(d.Rule),
		ClusterID: d.ClusterID, ClusterName: n.cluster(d.ClusterID), Plugin: d.Plugin, ReasonCode: d.ReasonCode, Reason: d.Reason,
		Asked: each(d.Asked, toAsked), Candidates: each(d.Candidates, toCandidate),
	}
}

func toAsked(a placement.Asked) gen.Asked {
	return gen.Asked{
		Plugin: a.Plugin, Hook: gen.AskedHook(a.Hook), Answer: gen.AskedAnswer(a.Kind), ClusterID: a.ClusterID, Clusters: a.Clusters,
		Reason: a.Reason, Ignored: a.Ignored, TookMs: float64(a.Took) / float64(time.Millisecond),
	}
}

func toCandidate(c placement.Candidate) gen.Candidate {
	return gen.Candidate{
		ID: c.ID, Name: c.Name, Type: c.Type, Labels: c.Labels, SortOrder: c.SortOrder, KubernetesVersion: c.Version,
		Health: string(c.Health), Capacity: toCapacity(c.Capacity), ActiveAttempts: c.Active, Default: c.Default, Excluded: c.Excluded,
	}
}

func toCapacity(c *cluster.Capacity) gen.Capacity {
	if c == nil {
		return gen.Capacity{}
	}
	out := gen.Capacity{ObservedAt: c.ObservedAt, Nodes: c.Nodes, Resources: make(map[string]gen.ResourceCapacity, len(c.Resources))}
	for name, r := range c.Resources {
		out.Resources[name] = gen.ResourceCapacity{NodeMax: r.NodeMax, NodeFreeMax: r.NodeFreeMax, Total: r.Total, Free: r.Free}
	}
	return out
}

func fromSubmission(s gen.Submission) process.Submission {
	return process.Submission{Key: s.Key, Name: s.Name, Type: s.Type, Labels: s.Labels, Spec: fromSpec(s.Spec)}
}

func fromSpec(s gen.Spec) process.Spec {
	out := process.Spec{
		Image: s.Image, Command: s.Command, Args: s.Args, WorkingDir: s.WorkingDir, Requests: s.Requests, Limits: s.Limits,
		NodeSelector: s.NodeSelector, Labels: s.Labels, Retries: s.Retries, MaxRuntimeSeconds: s.MaxRuntimeSeconds,
		Cluster: s.Cluster, QueueName: s.QueueName, StartLimits: s.StartLimits,
		InfrastructureRetries: s.InfrastructureRetries,
	}
	for _, e := range s.Env {
		out.Env = append(out.Env, process.EnvVar{Name: e.Name, Value: e.Value})
	}
	return out
}

func toSpec(s process.Spec) gen.Spec {
	out := gen.Spec{
		Image: s.Image, Command: s.Command, Args: s.Args, WorkingDir: s.WorkingDir, Requests: s.Requests, Limits: s.Limits,
		NodeSelector: s.NodeSelector, Labels: s.Labels, Retries: s.Retries, MaxRuntimeSeconds: s.MaxRuntimeSeconds,
		Cluster: s.Cluster, QueueName: s.QueueName, StartLimits: s.StartLimits,
		InfrastructureRetries: s.InfrastructureRetries,
	}
	for _, e := range s.Env {
		out.Env = append(out.Env, gen.EnvVar{Name: e.Name, Value: e.Value})
	}
	return out
}

func toProcess(p process.Process) gen.Process {
	return gen.Process{ID: p.ID, ProjectID: p.ProjectID, Name: p.Name, Type: p.Type, Labels: p.Labels, CreatedBy: p.CreatedBy, CreatedAt: p.CreatedAt}
}

func toEvent(ctx context.Context, n *names, e event.Event) gen.Event {
	out := gen.Event{
		Seq: e.Seq, At: e.At, Kind: string(e.Kind), ProjectID: e.ProjectID, ProcessID: e.ProcessID, VersionID: e.VersionID,
		AttemptID: e.AttemptID, ClusterID: e.ClusterID, ClusterName: n.cluster(ctx, e.ClusterID), Actor: e.Actor,
		ActorName: n.user(ctx, e.Actor), State: gen.State(e.State), Message: e.Message, Data: e.Data,
	}
	if e.AttemptID != "" && e.Data != nil {
		var f event.Facts
		if json.Unmarshal(e.Data, &f) == nil { // an older event has none
			out.AttemptNumber = f.Attempt
		}
	}
	return out
}

func toUser(u auth.User) gen.User {
	return gen.User{ID: u.ID, Name: u.Name, Groups: u.Groups, Admin: u.Admin, CreatedAt: u.CreatedAt}
}

func toAPIKey(k auth.APIKey) gen.APIKey {
	return gen.APIKey{
		ID: k.ID, Prefix: k.Prefix, Name: k.Name, UserID: k.UserID, CreatedAt: k.CreatedAt,
		ExpiresAt: orZero(k.ExpiresAt), RevokedAt: orZero(k.RevokedAt),
	}
}

func toProject(p project.Project) gen.Project {
	members := p.Members
	if members == nil {
		members = []string{}
	}
	return gen.Project{
		ID: p.ID, Name: p.Name, Labels: p.Labels, HomeCluster: p.HomeCluster, AllowedClusters: p.Allowed, Members: members,
		Storage:   p.Storage,
		CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
	}
}

func (v clusterView) cluster(c cluster.Cluster) gen.Cluster {
	out := gen.Cluster{
		ID: c.ID, Name: c.Name, Type: c.Type, ServedBy: v.served[c.Type], HasProviderConfig: hasConfig(c.ProviderConfig),
		Namespace: c.Namespace, Labels: c.Labels, SortOrder: c.SortOrder, Active: c.Active, QueueName: c.QueueName,
		Provisioning: string(c.Provisioning), Default: c.ID == v.defaultID, Observed: toObserved(c.Observed),
		ActiveAttempts: v.live[c.ID], Revision: c.Revision, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
	}
	if c.MaxRuntime != nil {
		out.MaxRuntimeSeconds = *c.MaxRuntime
	}
	if l := c.Lease; l != nil {
		out.Lease = gen.ForeignLease{Namespace: l.Namespace, Holder: l.Holder, Message: l.Message, Since: l.Since, ConfirmedBy: l.ConfirmedBy, ConfirmedAt: orZero(l.ConfirmedAt)}
	}
	if c.Cordon != nil {
		out.Cordon = gen.Cordon{By: c.Cordon.By, Reason: c.Cordon.Reason, At: c.Cordon.At}
	}
	return out
}

func hasConfig(raw json.RawMessage) bool {
	s := strings.TrimSpace(string(raw))
	return s != "" && s != "{}" && s != "null"
}

func toObserved(o cluster.Observed) gen.Observed {
	health := o.Health
	if health == "" {
		health = cluster.New
	}
	return gen.Observed{
		Health: string(health), Reason: o.Reason, Message: o.Message, Since: o.Since, CheckedAt: o.CheckedAt,
		KubernetesVersion: o.Version, Identity: o.Identity, Capacity: toCapacity(o.Capacity), UnreachableSince: orZero(o.Unreachable),
		Conditions: each(o.Conditions, toCondition),
	}
}

func toClusterType(t plugin.TypeInfo) gen.ClusterType {
	schema := t.Schema
	if len(schema) == 0 {
		schema = json.RawMessage("{}")
	}
	return gen.ClusterType{
		Type: t.Name, Title: t.Title, Description: t.Description, Plugin: t.Plugin, Served: t.ShadowedBy == "",
		ShadowedBy: t.ShadowedBy, Problem: t.Problem, SelfService: t.SelfService, ConfigSchema: schema,
	}
}

func toPlugin(p plugin.Status) gen.Plugin {
	out := gen.Plugin{
		Name: p.Name, Kind: string(p.Kind), Title: p.Title, Version: p.Version, DocsURL: p.DocsURL, Types: p.Types, State: string(p.State),
		Since: p.Since, Required: p.Required, IgnoreErrors: p.IgnoreErrors, Restarts: int32(p.Restarts), LastError: p.LastError,
		Path: p.Path, Pid: int32(p.PID), MemoryBytes: p.Memory,
	}
	for _, s := range p.Shadowed {
		if out.ShadowedBy == nil {
			out.ShadowedBy = map[string]string{}
		}
		out.ShadowedTypes = append(out.ShadowedTypes, s.Type)
		out.ShadowedBy[s.Type] = s.By
	}
	return out
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

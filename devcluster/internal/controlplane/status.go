package controlplane

import "time"

// Status is what `status` and the ready line show of a cluster.
type Status struct {
	Spec
	State        string         `json:"state"`
	Reason       string         `json:"reason,omitempty"`
	Server       string         `json:"server"`
	Kubeconfig   string         `json:"kubeconfig"`
	AuditLog     string         `json:"auditLog"`
	Dir          string         `json:"dir"`
	ReadySeconds float64        `json:"readySeconds"`
	StartedAt    time.Time      `json:"startedAt"`
	Restarts     int            `json:"restarts"` // of components that ended by themselves
	Processes    map[string]int `json:"processes"`
}

// Status returns the present state.
func (c *Cluster) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	status := Status{
		Spec: c.Spec, State: c.state, Reason: c.reason, Server: c.Server(),
		Kubeconfig: c.Paths.Kubeconfig(), AuditLog: c.Paths.AuditLog(), Dir: c.Paths.Dir,
		ReadySeconds: c.readyIn.Seconds(), StartedAt: c.started, Restarts: c.restarts,
		Processes: map[string]int{},
	}
	for _, process := range c.running {
		select {
		case <-process.Done():
		default:
			status.Processes[process.Name] = process.PID()
		}
	}
	return status
}

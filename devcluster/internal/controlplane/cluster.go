package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
)

// States of a cluster.
const (
	Starting   = "starting"
	Ready      = "ready"
	APIStopped = "apiserver-stopped" // by StopAPIServer
	Failed     = "failed"            // a component kept ending
	Stopped    = "stopped"
)

// graces before a component is killed; the data is thrown away, so none is long.
const (
	componentGrace = 3 * time.Second
	// It stops listening at once and then waits for watches that do not end.
	apiGrace = time.Second
)

// Cluster is one running cluster. Its methods may be called concurrently.
type Cluster struct {
	Spec  Spec
	Paths Paths

	spawner *child.Spawner
	nodes   NodeKind
	addons  []Addon
	logf    func(format string, args ...any)

	apiPort, etcdPort, etcdPeerPort int

	// op lets one of Start, Stop, Restart, StopAPIServer, StartAPIServer run.
	op sync.Mutex

	mu       sync.Mutex
	state    string
	reason   string // why it failed
	started  time.Time
	readyIn  time.Duration
	running  []*child.Process        // in the order of their start
	stopping map[*child.Process]bool // those that are meant to end
	restarts int
}

// New prepares a cluster in dir; nothing is started yet.
func New(spec Spec, dir string, spawner *child.Spawner, nodes NodeKind, addons []Addon, logf func(string, ...any)) (*Cluster, error) {
	c := &Cluster{
		Spec: spec, Paths: Paths{dir}, spawner: spawner, nodes: nodes, addons: addons,
		logf: logf, state: Stopped, stopping: map[*child.Process]bool{},
	}
	for _, port := range []*int{&c.apiPort, &c.etcdPort, &c.etcdPeerPort} {
		var err error
		if *port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	return c, c.writeFiles()
}

// Server is the URL of the API server.
func (c *Cluster) Server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.apiPort) }

// Start starts the components and returns when Jobs can run.
func (c *Cluster) Start(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	return c.start(ctx)
}

func (c *Cluster) start(ctx context.Context) error {
	began := time.Now()
	c.set(Starting, "")
	c.mu.Lock()
	c.started = began
	c.running = nil
	c.mu.Unlock()
	programs := []child.Program{c.etcdProgram(), c.apiServerProgram()}
	later := append([]child.Program{c.controllerManagerProgram(), c.schedulerProgram()}, c.nodes.Programs(c.Spec, c.Paths)...)
	// The API server retries until etcd answers: no need to wait in between.
	for _, program := range programs {
		if err := c.launch(program); err != nil {
			return err
		}
	}
	if err := c.waitAPI(ctx); err != nil {
		return err
	}
	for _, program := range later {
		if err := c.launch(program); err != nil {
			return err
		}
	}
	if err := c.waitUsable(ctx); err != nil {
		return err
	}
	for _, addon := range c.addons {
		if err := c.startAddon(ctx, addon); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.readyIn = time.Since(began)
	c.mu.Unlock()
	c.set(Ready, "")
	return nil
}

func (c *Cluster) startAddon(ctx context.Context, addon Addon) error {
	programs, err := addon.Programs(ctx, c)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Spec.Name, err)
	}
	for _, program := range programs {
		if err := c.launch(program); err != nil {
			return err
		}
		if program.Ready != nil {
			if err := c.poll(ctx, program.Name, program.Ready); err != nil {
				return err
			}
		}
	}
	if err := addon.Finish(ctx, c); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Spec.Name, err)
	}
	return nil
}

// launch starts a program and keeps it running until it is meant to stop.
func (c *Cluster) launch(program child.Program) error {
	process, err := c.spawner.Start(program)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Spec.Name, err)
	}
	c.mu.Lock()
	// A restarted component keeps its place in the order.
	replaced := false
	for i, old := range c.running {
		if old.Name == program.Name {
			c.running[i], replaced = process, true
		}
	}
	if !replaced {
		c.running = append(c.running, process)
	}
	c.mu.Unlock()
	go c.keep(process)
	return nil
}

// keep restarts a component that ended by itself, a few times.
func (c *Cluster) keep(process *child.Process) {
	<-process.Done()
	const most = 5
	c.mu.Lock()
	meant := c.stopping[process]
	starting := c.state == Starting
	if !meant {
		c.restarts++
	}
	tooMany := c.restarts > most || starting
	c.mu.Unlock()
	if meant {
		return
	}
	failure := process.Failure()
	c.logf("cluster %s: %v", c.Spec.Name, failure)
	if tooMany {
		c.set(Failed, failure.Error())
		return
	}
	time.Sleep(time.Second)
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	meant = c.stopping[process]
	c.mu.Unlock()
	if meant {
		return
	}
	if err := c.launch(process.Program); err != nil {
		c.set(Failed, err.Error())
	}
}

// Stop stops everything: nodes first, so that pods end while the API server
// still takes note, etcd last.
func (c *Cluster) Stop() {
	c.op.Lock()
	defer c.op.Unlock()
	c.stop()
}

func (c *Cluster) stop() {
	c.mu.Lock()
	running := c.running
	c.running = nil
	for _, process := range running {
		c.stopping[process] = true
	}
	c.mu.Unlock()
	for i := len(running) - 1; i >= 0; i-- {
		grace := c.nodes.Grace()
		switch running[i].Name {
		case APIServer:
			grace = apiGrace
		case Etcd, ControllerManager, Scheduler:
			grace = componentGrace
		}
		running[i].Stop(grace)
	}
	c.set(Stopped, "")
}

// Restart stops and starts everything on the same ports and the same data.
func (c *Cluster) Restart(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	c.stop()
	return c.start(ctx)
}

// StopAPIServer stops the API server only; pods go on running.
func (c *Cluster) StopAPIServer() error {
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	var api *child.Process
	for _, process := range c.running {
		if process.Name == APIServer {
			api = process
		}
	}
	if api != nil {
		c.stopping[api] = true
	}
	c.mu.Unlock()
	if api == nil {
		return fmt.Errorf("cluster %s has no API server to stop: it is %s", c.Spec.Name, c.Status().State)
	}
	api.Stop(apiGrace)
	c.set(APIStopped, "")
	return nil
}

// StartAPIServer starts it again on the same port and data, and waits for it.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	c.op.Lock()
	defer c.op.Unlock()
	c.mu.Lock()
	stopped := false
	for _, process := range c.running {
		stopped = stopped || process.Name == APIServer && c.stopping[process]
	}
	c.mu.Unlock()
	if stopped {
		if err := c.launch(c.apiServerProgram()); err != nil {
			return err
		}
	}
	if err := c.waitAPI(ctx); err != nil {
		return err
	}
	c.set(Ready, "")
	return nil
}

func (c *Cluster) set(state, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.reason = state, reason
}

// failed returns why the cluster failed, if it did.
func (c *Cluster) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == Failed {
		return errors.New(c.reason)
	}
	return nil
}

// Remove deletes the cluster's folder.
func (c *Cluster) Remove() error { return os.RemoveAll(c.Paths.Dir) }

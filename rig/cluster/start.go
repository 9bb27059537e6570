package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// errNoBinary is the reason for which tests are skipped.
var errNoBinary = errors.New("no devcluster binary: build it with `make devcluster` or set " + BinaryEnv)

// errNoKueue is the reason for which tests with Kueue are skipped.
var errNoKueue = errors.New("no kueue beside the devcluster binary: build it with devcluster/kueue.sh")

// Start returns clusters for one test, in the order of options.Specs, and stops
// them when it ends. It skips the test when there is no binary.
func Start(t testing.TB, options Options) []*Cluster {
	t.Helper()
	clusters, stop, err := start(options)
	if err != nil {
		giveUp(t, err)
	}
	t.Cleanup(stop)
	return clusters
}

// off as the binary asks for quick tests only.
const off = "off"

// giveUp skips when clusters are a matter of taste, and fails otherwise.
func giveUp(t testing.TB, err error) {
	t.Helper()
	for reason, require := range map[error]string{errNoBinary: RequireEnv, errNoKueue: RequireKueueEnv} {
		if errors.Is(err, reason) && os.Getenv(require) != "1" {
			t.Skipf("skipped: %v (set %s=1 to make this a failure)", err, require)
		}
	}
	t.Fatal(err)
}

// shared are the clusters of Main.
var shared struct {
	sync.Once
	options  Options
	clusters []*Cluster
	stop     func()
	err      error
}

// Main is for TestMain: all tests of the package share clusters, which start
// when the first test calls Shared.
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Main(m, cluster.Options{…})) }
func Main(m *testing.M, options Options) int {
	shared.options = options
	code := m.Run()
	if shared.stop != nil {
		shared.stop()
	}
	return code
}

// Shared returns the clusters of Main.
func Shared(t testing.TB) []*Cluster {
	t.Helper()
	shared.Do(func() { shared.clusters, shared.stop, shared.err = start(shared.options) })
	if shared.err != nil {
		giveUp(t, shared.err)
	}
	return shared.clusters
}

// ready is the line that devcluster prints for each cluster.
type ready struct {
	Name       string `json:"name"`
	GPUs       int    `json:"gpus"`
	Server     string `json:"server"`
	Kubeconfig string `json:"kubeconfig"`
	AuditLog   string `json:"auditLog"`
}

func start(options Options) (clusters []*Cluster, stop func(), err error) {
	binary, err := findBinary()
	if err != nil {
		return nil, nil, err
	}
	if options.Kueue {
		if _, err := os.Stat(filepath.Join(filepath.Dir(binary), "kueue")); err != nil {
			return nil, nil, fmt.Errorf("%w (%w)", errNoKueue, err)
		}
	}
	if len(options.Specs) == 0 {
		options.Specs = []Spec{{Name: "dev"}}
	}
	if dir := os.Getenv(DirEnv); dir != "" && !options.Private {
		clusters, err := attach(binary, dir, options)
		if clusters != nil || err != nil {
			return clusters, func() {}, err
		}
	}
	return launch(binary, options)
}

// attach uses the clusters of a running supervisor if they suit. nil is "no".
func attach(binary, dir string, options Options) ([]*Cluster, error) {
	output, err := run(context.Background(), binary, "status", "--json", "--dir", dir)
	if err != nil {
		return nil, fmt.Errorf("use the clusters that %s names: %w", DirEnv, err)
	}
	var report struct {
		Clusters []ready `json:"clusters"`
	}
	if err := json.Unmarshal(output, &report); err != nil {
		return nil, fmt.Errorf("read the status of %s: %w", dir, err)
	}
	if options.Kueue || options.Nodes > 1 || options.CPU != "" || options.Memory != "" || options.Pods != 0 {
		return nil, nil
	}
	return arrange(report.Clusters, options, binary, dir), nil
}

// arrange puts clusters in the order of the specs; nil if one is missing.
func arrange(found []ready, options Options, binary, dir string) []*Cluster {
	var clusters []*Cluster
	for _, spec := range options.Specs {
		for _, r := range found {
			if r.Name == spec.Name && r.GPUs == spec.GPUs {
				clusters = append(clusters, &Cluster{
					Name: r.Name, Server: r.Server, KubeconfigPath: r.Kubeconfig, AuditLog: r.AuditLog,
					GPUs: r.GPUs, dir: dir, binary: binary,
				})
			}
		}
	}
	if len(clusters) < len(options.Specs) {
		return nil
	}
	return clusters
}

// patience is for a busy machine; an idle one takes a few seconds.
const patience = 4 * time.Minute

// launch starts a supervisor that also ends when this process does.
func launch(binary string, options Options) ([]*Cluster, func(), error) {
	dir, err := os.MkdirTemp("", "devcluster-")
	if err != nil {
		return nil, nil, fmt.Errorf("make a folder for clusters: %w", err)
	}
	args := []string{"up", "--json", "--until-eof", "--dir", dir}
	for _, spec := range options.Specs {
		args = append(args, "--name", fmt.Sprintf("%s:gpus=%d", spec.Name, spec.GPUs))
	}
	for flag, value := range map[string]int{"--nodes": options.Nodes, "--pods": options.Pods} {
		if value > 0 {
			args = append(args, flag, strconv.Itoa(value))
		}
	}
	for flag, value := range map[string]string{"--cpu": options.CPU, "--memory": options.Memory} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	if options.Kueue {
		args = append(args, "--kueue")
	}
	var progress bytes.Buffer
	process := exec.Command(binary, args...)
	process.Stderr = &progress
	// Ctrl-C goes to the test, which stops the clusters.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Never written to; the kernel closes it with this process.
	if _, err := process.StdinPipe(); err != nil {
		return nil, nil, err
	}
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := process.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", binary, err)
	}
	stop := func() {
		_ = process.Process.Signal(syscall.SIGTERM)
		tooLong := time.AfterFunc(30*time.Second, func() { _ = process.Process.Kill() })
		_ = process.Wait()
		tooLong.Stop()
		_ = os.RemoveAll(dir)
	}
	found := make(chan []ready, 1)
	go func() {
		var all []ready
		lines := bufio.NewScanner(output)
		for len(all) < len(options.Specs) && lines.Scan() {
			var r ready
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				all = append(all, r)
			}
		}
		found <- all
		_, _ = io.Copy(io.Discard, output)
	}()
	var all []ready
	select {
	case all = <-found:
	case <-time.After(patience):
		err = fmt.Errorf("clusters not ready after %s", patience)
	}
	clusters := arrange(all, options, binary, dir)
	if clusters == nil {
		stop()
		return nil, nil, errors.Join(err, fmt.Errorf("%s %q did not start the clusters:\n%s", binary, args, progress.String()))
	}
	return clusters, stop, nil
}

func findBinary() (string, error) {
	path := os.Getenv(BinaryEnv)
	if path == off {
		return "", fmt.Errorf("%w (%s=%s)", errNoBinary, BinaryEnv, off)
	}
	if path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", BinaryEnv, err)
		}
		return path, nil
	}
	dir, err := os.Getwd() // go test runs in the package's folder
	if err != nil {
		return "", err
	}
	for {
		path := filepath.Join(dir, "bin", "devcluster")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errNoBinary
		}
		dir = parent
	}
}

func run(ctx context.Context, binary string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	command := exec.CommandContext(ctx, binary, args...)
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w: %s", binary, args, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return output, nil
}

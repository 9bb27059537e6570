package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"

	"github.com/nagelfluh/nagelfluh/e2e/stack"
	"github.com/nagelfluh/nagelfluh/sdk/handshake"
)

// placement: what five selectors cost one decision, against an empty gRPC call to each of five such processes, in turns.
func placement(ctx context.Context, b *bench) ([]row, error) {
	dir, err := b.fiveSelectors()
	if err != nil {
		return nil, err
	}
	w, err := b.serve(ctx, b.clusters.Kubeconfig("gpu"), func(o *stack.ServerOptions) { o.PluginDir = dir })
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.close(ctx) }()

	var floor []goplugin.ClientProtocol
	for i := range 5 {
		rpc, kill, err := emptyPlugin(filepath.Join(dir, fmt.Sprintf("selector-%d0-gpu", i+1)))
		if err != nil {
			return nil, err
		}
		defer kill()
		floor = append(floor, rpc)
	}
	n := b.n(1000)
	var chain, one, five []time.Duration
	for i := range n {
		took, err := w.dryRun(ctx, fmt.Sprintf("dry-%04d", i))
		if err != nil {
			return nil, err
		}
		chain = append(chain, took)
		sum := time.Duration(0)
		for _, rpc := range floor {
			start := time.Now()
			if err := rpc.Ping(); err != nil {
				return nil, err
			}
			one = append(one, time.Since(start))
			sum += one[len(one)-1]
		}
		five = append(five, sum)
	}
	p99 := quantile(chain, 0.99)
	return []row{{
		name: "(c) placement with five selectors", ours: p50p99(chain),
		base:   fmt.Sprintf("five empty gRPC calls %s, one %s", p50p99(five), p50p99(one)),
		result: fmt.Sprintf("p99 %s, %.1f of the baseline's; p50 %.1f", ms(p99), float64(p99)/float64(quantile(five, 0.99)), float64(quantile(chain, 0.5))/float64(quantile(five, 0.5))),
		aim:    "p99 ≤ 2 ms", met: p99 <= 2*time.Millisecond,
	}}, nil
}

func (b *bench) fiveSelectors() (string, error) {
	root, err := stack.Root()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(b.dir, "plugins")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for to, from := range map[string]string{
		"provider-kubeconfig": "provider-kubeconfig", "provider-sameasbackend": "provider-sameasbackend",
		"selector-10-gpu": "selector-gpu", "selector-20-gpu": "selector-gpu", "selector-30-gpu": "selector-gpu",
		"selector-40-gpu": "selector-gpu", "selector-50-gpu": "selector-gpu",
	} {
		raw, err := os.ReadFile(filepath.Join(root, "bin", "plugins", from))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, to), raw, 0o755); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// dryRun returns how long the plugin calls of one decision took together.
func (w *world) dryRun(ctx context.Context, name string) (time.Duration, error) {
	var d struct {
		Outcome string
		Asked   []struct {
			Answer string
			TookMs float64 `json:"took_ms"`
		}
	}
	if err := w.post(ctx, "/projects/default/processes/dry-run", submission(name, 0, "true"), &d); err != nil {
		return 0, err
	}
	if d.Outcome != "placed" || len(d.Asked) != 5 {
		return 0, fmt.Errorf("the dry run is %s after %d selectors, want placed after five", d.Outcome, len(d.Asked))
	}
	sum := 0.0
	for _, a := range d.Asked {
		sum += a.TookMs
	}
	return time.Duration(sum * float64(time.Millisecond)), nil
}

// emptyPlugin starts a plugin of which nothing is asked but whether it is there.
func emptyPlugin(binary string) (rpc goplugin.ClientProtocol, kill func(), err error) {
	client := goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake.Config(),
		VersionedPlugins: handshake.ClientSets(),
		Cmd:              exec.Command(binary), AutoMTLS: true,
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		GRPCDialOptions:  handshake.CallOptions(),
		Logger:           hclog.NewNullLogger(),
	})
	if rpc, err = client.Client(); err != nil {
		client.Kill()
		return nil, nil, err
	}
	return rpc, client.Kill, nil
}

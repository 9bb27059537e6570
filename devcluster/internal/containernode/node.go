package containernode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
)

// node is one machine of a cluster: this one.
type node struct {
	Spec controlplane.Spec
	Dir  string // of the cluster
	Bin  string // of containerd's binaries
}

func (n node) paths() controlplane.Paths { return controlplane.Paths{Dir: n.Dir} }

// file is a path in the node's own folder.
func (n node) file(name ...string) string {
	return filepath.Join(append([]string{n.Dir, "node"}, name...)...)
}

func (n node) socket() string { return n.file("containerd.sock") }

// bridge names the network device of the pods; its number is the address's.
func (n node) bridge() string {
	return "ngf" + strings.Split(n.Spec.NodeAddress, ".")[2]
}

const (
	kubeletName    = "kubelet"
	containerdName = "containerd"
	kubeletGrace   = 3 * time.Second
	runtimeGrace   = 3 * time.Second
)

// run keeps the node until ctx ends or a part of it does.
func (n node) run(ctx context.Context) error {
	cleaner, err := startCleaner(n)
	if err != nil {
		return err
	}
	defer cleaner.close()
	if err := n.writeFiles(); err != nil {
		return err
	}
	if err := n.command(ctx, "ip", "link", "add", n.bridge(), "type", "bridge"); err != nil {
		return err
	}
	if err := n.command(ctx, "ip", "address", "add", n.Spec.NodeAddress+"/24", "dev", n.bridge()); err != nil {
		return err
	}
	if err := n.command(ctx, "ip", "link", "set", n.bridge(), "up"); err != nil {
		return err
	}
	spawner, err := child.NewSpawner()
	if err != nil {
		return err
	}
	containerd, err := spawner.Start(child.Program{
		Name: containerdName, Path: filepath.Join(n.Bin, "containerd"), Args: []string{"--config", n.file("containerd.toml")},
		Env: []string{"PATH=" + n.Bin + ":" + os.Getenv("PATH")}, LogFile: n.paths().Log(containerdName),
	})
	if err != nil {
		return err
	}
	defer containerd.Stop(runtimeGrace)
	if err := n.importImages(ctx, containerd); err != nil {
		return err
	}
	kubelet, err := spawner.Start(child.Program{
		Name: kubeletName, LogFile: n.paths().Log(kubeletName), Args: []string{
			kubeletName, "--config=" + n.file("kubelet.yaml"), "--kubeconfig=" + n.paths().UserKubeconfig(controlplane.FileNodes),
			"--root-dir=" + n.file("kubelet"), "--cert-dir=" + n.file("kubelet", "pki"),
			"--hostname-override=" + n.Spec.Name + "-0", "--node-ip=" + n.Spec.NodeAddress,
		},
	})
	if err != nil {
		return err
	}
	defer kubelet.Stop(kubeletGrace)
	select {
	case <-ctx.Done():
		return nil
	case <-containerd.Done():
		return containerd.Failure()
	case <-kubelet.Done():
		return kubelet.Failure()
	}
}

// importImages gives containerd the images that need no registry, once it answers.
func (n node) importImages(ctx context.Context, containerd *child.Process) error {
	path := n.file("images.tar")
	if err := writeImages(path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := n.ctr(ctx, "images", "import", "--local", "--digests=false", path)
		if err == nil {
			return nil
		}
		select {
		case <-containerd.Done():
			return containerd.Failure()
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (n node) ctr(ctx context.Context, args ...string) error {
	return n.command(ctx, filepath.Join(n.Bin, "ctr"), append([]string{"--address", n.socket(), "--namespace", "k8s.io"}, args...)...)
}

// command runs a program to its end.
func (n node) command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

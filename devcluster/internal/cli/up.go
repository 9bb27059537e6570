package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/containernode"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/kueue"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/procnode"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/specs"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/supervisor"
)

func upCommand(dir *string) *cobra.Command {
	var (
		list           specs.List
		common         controlplane.Spec
		asJSON, detach bool
		untilEOF       bool
		withKueue      bool
		containers     bool
		kueueBinary    string
	)
	command := &cobra.Command{
		Use:   "up",
		Short: "Start clusters and keep them until interrupted",
		Long: `Start clusters and keep them until interrupted.

Each cluster that is ready is one line on standard output: its name, a tab, and the path
of its kubeconfig. Progress goes to standard error.`,
		Example: `  devcluster up
  devcluster up --name a --name gpu --gpus 8
  devcluster up --name a --name gpu:gpus=8 --detach --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			clusters, err := list.Finish(common)
			if err != nil {
				return err
			}
			var nodes controlplane.NodeKind = procnode.Kind{}
			if containers {
				kind, err := containernode.New()
				if err == nil {
					err = kind.Place(clusters)
				}
				if err != nil {
					return err
				}
				nodes = kind
			}
			var addons []controlplane.Addon
			if withKueue {
				addon, err := kueue.New(kueueBinary)
				if err != nil {
					return err
				}
				addons = append(addons, addon)
			}
			if detach {
				return upDetached(command.Context(), *dir, asJSON, command.OutOrStdout())
			}
			ctx, stop := context.WithCancel(command.Context())
			defer stop()
			if untilEOF {
				go func() {
					_, _ = io.Copy(io.Discard, command.InOrStdin())
					stop()
				}()
			}
			began := time.Now()
			return supervisor.Run(ctx, supervisor.Config{
				Dir:    *dir,
				Specs:  clusters,
				Nodes:  nodes,
				Addons: addons,
				Ready:  func(status controlplane.Status) { printReady(command.OutOrStdout(), status, asJSON) },
				Logf: func(format string, args ...any) {
					fmt.Fprintf(command.ErrOrStderr(), "devcluster %5.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
				},
			})
		},
	}
	flags := command.Flags()
	flags.SortFlags = false
	list.Register(flags)
	flags.IntVar(&common.Nodes, "nodes", 1, "nodes of each cluster")
	flags.StringVar(&common.CPU, "cpu", "64", "CPUs of each node")
	flags.StringVar(&common.Memory, "memory", "256Gi", "memory of each node")
	flags.IntVar(&common.Pods, "pods", 5000, "pods of each node")
	flags.BoolVar(&common.AuditObjects, "audit-objects", false, "log Jobs and pods with their status in audit.log, not only their names")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object a line instead")
	flags.BoolVar(&detach, "detach", false, "run in the background; return when ready")
	flags.BoolVar(&untilEOF, "until-eof", false, "stop at the end of standard input too: for programs that start this one and may be killed")
	flags.BoolVar(&containers, "containers", false, "run a real kubelet with containerd as the node of each cluster: Linux and root; built by devcluster/containerd.sh")
	flags.BoolVar(&withKueue, "kueue", false, "run Kueue in each cluster, with queues named default; built by devcluster/kueue.sh")
	flags.StringVar(&kueueBinary, "kueue-bin", "", "Kueue's binary, with kueue-crds beside it (default: kueue beside this binary)")
	return command
}

func printReady(w io.Writer, status controlplane.Status, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	fmt.Fprintf(w, "%s\t%s\n", status.Name, status.Kubeconfig)
}

// upDetached starts the same command without --detach in a session of its own
// and returns when its clusters are ready.
func upDetached(ctx context.Context, dir string, asJSON bool, out io.Writer) error {
	if client, err := supervisor.Dial(dir); err == nil {
		if _, err := client.Status(ctx); err == nil {
			return fmt.Errorf("%s is in use by another devcluster: stop it with `devcluster down --dir %s` or give this one another --dir", dir, dir)
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the folder for dev clusters: %w", err)
	}
	logPath := filepath.Join(dir, "supervisor.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the supervisor's log: %w", err)
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary to start it again: %w", err)
	}
	var args []string
	for _, arg := range os.Args[1:] {
		if detached, isBool := boolFlag(arg, "--detach"); !isBool || !detached {
			args = append(args, arg)
		}
	}
	process := exec.Command(self, args...)
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start in the background: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	for {
		report, err := statusOf(ctx, dir, process.Process.Pid)
		if err == nil && report.Ready {
			for _, status := range report.Clusters {
				printReady(out, status, asJSON)
			}
			return nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(logPath)
			return errors.New("the background process ended before its clusters were ready:\n" + string(text))
		case <-ctx.Done():
			_ = process.Process.Signal(syscall.SIGTERM)
			<-ended
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func statusOf(ctx context.Context, dir string, pid int) (supervisor.Report, error) {
	client, err := supervisor.Dial(dir)
	if err != nil {
		return supervisor.Report{}, err
	}
	report, err := client.Status(ctx)
	if err == nil && report.PID != pid {
		err = supervisor.ErrNotRunning // somebody else's
	}
	return report, err
}

// boolFlag reads --name or --name=value.
func boolFlag(arg, name string) (value, matches bool) {
	if arg == name {
		return true, true
	}
	if len(arg) > len(name) && arg[:len(name)+1] == name+"=" {
		value, err := strconv.ParseBool(arg[len(name)+1:])
		return value, err == nil
	}
	return false, false
}

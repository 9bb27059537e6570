package procnode

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"runtime"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/node"
	"github.com/virtual-kubelet/virtual-kubelet/node/nodeutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"

	"github.com/nagelfluh/nagelfluh/devcluster/internal/child"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/controlplane"
	"github.com/nagelfluh/nagelfluh/devcluster/internal/reaper"
)

type config struct {
	spec       controlplane.Spec
	kubeconfig string
	pki        string
	podsDir    string
}

// gpuResource is what device plugins of the best-known vendor announce.
const gpuResource = corev1.ResourceName("nvidia.com/gpu")

// run registers the nodes, runs their pods until ctx ends, and then ends those.
//
// Nodes are registered and kept alive by virtual-kubelet. Its pod controller is
// not used: it deletes a pod's object when the grace period is over and not when
// the processes are gone, writes whole objects back over others' changes, and
// reads every Secret of the cluster.
func run(ctx context.Context, c config) error {
	restConfig, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("nodes: read %s: %w", c.kubeconfig, err)
	}
	restConfig.QPS = -1 // the API server's own limits are limit enough
	restConfig.ContentType = "application/vnd.kubernetes.protobuf"
	restConfig.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	restConfig.UserAgent = "devcluster-node"
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	if err := os.RemoveAll(c.podsDir); err != nil {
		return fmt.Errorf("nodes: remove the pods of an earlier run: %w", err)
	}
	if err := os.MkdirAll(c.podsDir, 0o755); err != nil {
		return fmt.Errorf("nodes: make the folder of pods: %w", err)
	}
	killer, err := reaper.Start()
	if err != nil {
		return err
	}
	defer killer.Close()
	pods := newManager(client, &launcher{thread: child.NewThread(), reaper: killer}, c.podsDir)
	port, closeServer, err := serve(pods, c.pki)
	if err != nil {
		return err
	}
	defer closeServer()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, c.spec.Nodes)
	for i := range c.spec.Nodes {
		object := nodeObject(c.spec, i, port)
		controller, err := node.NewNodeController(node.NewNaiveNodeProvider(), object, client.CoreV1().Nodes(),
			node.WithNodeEnableLeaseV1(nodeutil.NodeLeaseV1Client(client), node.DefaultLeaseDuration))
		if err != nil {
			return fmt.Errorf("node %s: %w", object.Name, err)
		}
		go func() {
			if err := controller.Run(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("node %s: %w", object.Name, err)
			}
		}()
	}
	stopPods := pods.start(ctx)
	select {
	case <-ctx.Done():
		err = nil
	case err = <-failed:
	}
	cancel()
	stopPods()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

func nodeObject(spec controlplane.Spec, index, port int) *corev1.Node {
	name := spec.Name
	if spec.Nodes > 1 {
		name = fmt.Sprintf("%s-%d", spec.Name, index)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(spec.CPU),
		corev1.ResourceMemory:           resource.MustParse(spec.Memory),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             *resource.NewQuantity(int64(spec.Pods), resource.DecimalSI),
	}
	if spec.GPUs > 0 {
		capacity[gpuResource] = *resource.NewQuantity(int64(spec.GPUs), resource.DecimalSI)
	}
	now := metav1.NewTime(time.Now())
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelOSStable:   runtime.GOOS,
				corev1.LabelArchStable: runtime.GOARCH,
			},
		},
		Status: corev1.NodeStatus{
			Phase:       corev1.NodeRunning,
			Capacity:    capacity,
			Allocatable: capacity.DeepCopy(),
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "process node is ready"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", ""),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", ""),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", ""),
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: loopback},
				{Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion:          version.Get().GitVersion,
				OperatingSystem:         runtime.GOOS,
				Architecture:            runtime.GOARCH,
				ContainerRuntimeVersion: "process://1",
				OSImage:                 "devcluster process node",
			},
		},
	}
}

const loopback = "127.0.0.1"

// logf writes to the log file of this program.
func logf(format string, args ...any) { log.Printf(format, args...) }

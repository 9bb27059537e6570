package containernode

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// cniBin is where Debian's packages put the network plugins.
const cniBin = "/usr/lib/cni"

// writeFiles makes what containerd and the kubelet read at start.
func (n node) writeFiles() error {
	for _, dir := range []string{"cni", "certs.d", "kubelet", "logs"} {
		if err := os.MkdirAll(n.file(dir), 0o700); err != nil {
			return fmt.Errorf("make the node's folder: %w", err)
		}
	}
	// Sockets have short paths.
	if longest := len(n.file("kubelet", "pod-resources", "1234567890")); longest > 100 {
		return fmt.Errorf("the folder %s is too deep for the node's sockets: give a shorter --dir", n.Dir)
	}
	for name, text := range map[string]string{
		"containerd.toml":        n.containerdConfig(),
		"kubelet.yaml":           n.kubeletConfig(),
		"cni/10-bridge.conflist": n.network(),
	} {
		if err := os.WriteFile(n.file(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the node's configuration: %w", err)
		}
	}
	return nil
}

// containerdConfig is containerd's. Lowering the OOM score of a container is
// refused to who may not, so it is not tried. Network namespaces and what runc
// notes of containers are kept in the node's folder, where the cleaner finds them.
func (n node) containerdConfig() string {
	return fmt.Sprintf(`version = 3
root = %q
state = %q
[grpc]
  address = %q
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = %q
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = %q
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  Root = %q
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = [%q]
  conf_dir = %q
[plugins.'io.containerd.internal.v1.opt']
  path = %q
`, n.file("containerd"), n.file("state"), n.socket(), pauseImage, n.file("certs.d"), n.file("runc"), cniBin, n.file("cni"), n.file("opt"))
}

// kubeletConfig is the kubelet's. Logs are rotated early, and what the kubelet
// does now and then it does often: tests wait for it. Its rules in the machine's
// firewall serve services, which no pod here can reach; they would outlive it.
func (n node) kubeletConfig() string {
	pki := n.paths().PKI()
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %[2]q}}
authorization: {mode: AlwaysAllow}
tlsCertFile: %[3]q
tlsPrivateKeyFile: %[4]q
containerRuntimeEndpoint: unix://%[5]s
failSwapOn: false
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
makeIPTablesUtilChains: false
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
containerLogMaxSize: 1Mi
containerLogMaxFiles: 2
containerLogMonitorInterval: 3s
podLogsDir: %[6]q
volumePluginDir: %[7]q
resolvConf: ""
maxPods: 200
`, n.Spec.NodeAddress, filepath.Join(pki, "ca.crt"), filepath.Join(pki, "kubelet.crt"), filepath.Join(pki, "kubelet.key"), n.socket(),
		n.file("logs"), n.file("volumeplugins"))
}

// network is a bridge for the pods, without a way out: images come from this
// machine, and tests need nothing else.
func (n node) network() string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": %q, "isGateway": false, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q, "rangeStart": %q}]]}
}]}
`, n.bridge(), n.file("ipam"), strings.TrimSuffix(n.Spec.NodeAddress, ".1")+".0/24", strings.TrimSuffix(n.Spec.NodeAddress, ".1")+".10")
}

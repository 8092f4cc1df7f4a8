// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/build"
)

// Info is cluster.json: what another program needs in order to use a running
// cluster. All paths are absolute and on the host.
type Info struct {
	Name              string `json:"name"`
	NodeName          string `json:"nodeName"`
	KubernetesVersion string `json:"kubernetesVersion"`
	// ContainerRuntime is containerd or cri-o.
	ContainerRuntime string `json:"containerRuntime"`
	// Kubeconfig has the rights of an administrator.
	Kubeconfig string `json:"kubeconfig"`
	// APIServer is a URL that the host can reach.
	APIServer string `json:"apiserver"`
	// NodeIP is the node's address, in the network namespace NetNS.
	NodeIP string `json:"nodeIP"`
	NetNS  string `json:"netns"`
	// PluginsDir and PluginsRegistryDir are the kubelet's directories for DRA drivers.
	PluginsDir         string `json:"pluginsDir"`
	PluginsRegistryDir string `json:"pluginsRegistryDir"`
	// DevicePluginsDir is what the kubelet has at /var/lib/kubelet/device-plugins.
	DevicePluginsDir string `json:"devicePluginsDir"`
	// CDIDir is the container runtime's directory for CDI specs.
	CDIDir string `json:"cdiDir"`
	// ContainerdSocket is empty with CRI-O.
	ContainerdSocket string `json:"containerdSocket,omitempty"`
	StateDir         string `json:"stateDir"`
	BinDir           string `json:"binDir"`
	LogsDir          string `json:"logsDir"`
}

func (l Layout) info(n network, o Options) Info {
	info := Info{
		Name:               l.Name,
		NodeName:           l.NodeName(),
		KubernetesVersion:  o.Release.Version,
		ContainerRuntime:   o.ContainerRuntime,
		Kubeconfig:         l.Kubeconfig(),
		APIServer:          n.apiserverURL(),
		NodeIP:             n.Node.String(),
		NetNS:              l.NetNS(),
		PluginsDir:         filepath.Join(l.KubeletRoot(), "plugins"),
		PluginsRegistryDir: filepath.Join(l.KubeletRoot(), "plugins_registry"),
		DevicePluginsDir:   l.DevicePluginsDir(),
		CDIDir:             l.CDIDir(),
		ContainerdSocket:   l.ContainerdSocket(),
		StateDir:           l.State,
		BinDir:             l.Bin,
		LogsDir:            l.LogsDir(),
	}
	if o.ContainerRuntime == build.CRIO {
		info.ContainerdSocket = ""
	}
	return info
}

// ReadInfo reads cluster.json. The error wraps [fs.ErrNotExist] where no
// cluster of that name is up.
func ReadInfo(l Layout) (Info, error) {
	data, err := os.ReadFile(l.InfoFile())
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, fmt.Errorf("cluster %s is not up: %w", l.Name, err)
	}
	if err != nil {
		return Info{}, fmt.Errorf("cluster %s: %w", l.Name, err)
	}
	var info Info
	if err := json.Unmarshal(data, &info); err != nil {
		return Info{}, fmt.Errorf("cluster %s: %s: %w", l.Name, l.InfoFile(), err)
	}
	return info, nil
}

func (i Info) write(path string) error {
	data, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

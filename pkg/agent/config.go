// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/place"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/disk/store"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

// Config says how an agent runs. All paths are absolute.
type Config struct {
	// CDIHook is nvidia-cdi-hook on the host; empty to install the one in the folder
	// of this program.
	CDIHook string
	// Directs are the interfaces of GPUDirect that containers get.
	Directs []gpu.Direct
	// DriverRoot and DevRoot are the paths of the driver and its device nodes for this
	// process. HostDriverRoot and HostDevRoot are the paths on the host, and are empty
	// for the same paths.
	DriverRoot, HostDriverRoot string
	DevRoot, HostDevRoot       string
	// MachineRoot is the folder with sys and proc of the machine whose GPUs these are.
	MachineRoot string

	// NodeConfig is the configuration of the node unless its labels say otherwise.
	// Shares.MPS follows from Supervisor.
	catalog.NodeConfig
	// NodeConfigs is the file of the configurations that labels of nodes name; empty for
	// none.
	NodeConfigs string
	// MIGLayouts is the file of the layouts of MIG devices; empty for none.
	// MIGConfigLabel lets a label of the node name the layout.
	MIGLayouts     string
	MIGConfigLabel bool
	// Attributes selects the published attributes. ListAttributes adds lists.
	Attributes     kind.Selection
	ListAttributes bool
	// UnknownAttributes names the requested attributes that do not exist; nil if there are
	// none. The agent reports it and publishes the others.
	UnknownAttributes error

	// MemoryLimits makes the driver limit containers' memory of a GPU, on nodes that
	// can do so.
	MemoryLimits bool
	// Supervisor is the socket of gpu-mps-supervisor; empty for none.
	Supervisor string
	// TakeOver serves a node that another driver of the same name serves.
	TakeOver bool
	// ExclusiveCompute puts GPUs into EXCLUSIVE_PROCESS while they have MPS shares.
	ExclusiveCompute bool

	DriverName string
	NodeName   string
	// Kubeconfig says how to reach the API server; empty for the service account of
	// the agent's pod.
	Kubeconfig string
	// DaemonSet is the DaemonSet of the agent's pod, "namespace/name". While it exists, the
	// last agent of the node leaves its folder for the next one. Empty outside a pod.
	DaemonSet string
	// ReconcileInterval is how often the claims held here are compared with the
	// claims in the cluster.
	ReconcileInterval time.Duration

	KubeletPluginsDir  string
	KubeletRegistryDir string
	// PodResources is the kubelet's socket for external allocations; empty if they
	// are not read.
	PodResources string
	CDIDir       string
	// PodUID of the agent's pod; empty outside a pod.
	PodUID string

	// HTTPListen is the address for metrics and probes; empty for none.
	HTTPListen string
	// ViewerAccount is the service account ("namespace/name") for reading the facts
	// about the node. Users send its tokens. If it is empty, the agent serves no facts.
	ViewerAccount string
	// OnEnd is called when the agent begins to end; may be nil.
	OnEnd func()

	// network has the sockets; nil is the machine's.
	network place.Network
	// kernel shows the processes; empty is the machine's.
	kernel procfs.Root
	// disks wrap the disk of the records.
	disks []func(store.FS) store.FS
	// wallClock tells the time; nil is the machine's.
	wallClock clock.WithTicker
}

func (c *Config) clock() clock.WithTicker {
	return cmp.Or[clock.WithTicker](c.wallClock, clock.RealClock{})
}

// driverDir returns the driver's folder among the kubelet's plugins.
func (c *Config) driverDir() string { return filepath.Join(c.KubeletPluginsDir, c.DriverName) }

// place returns where the agent serves the kubelet.
func (c *Config) place() place.Place {
	return place.Place{DriverName: c.DriverName, PodUID: types.UID(c.PodUID), DataDir: c.driverDir(), RegistryDir: c.KubeletRegistryDir, CDIDir: c.CDIDir, Network: c.network}
}

// settings returns the settings of the node's catalog.
func (c *Config) settings() catalog.Settings {
	return catalog.Settings{Pool: c.NodeName, Selection: c.Attributes, ListAttributes: c.ListAttributes}
}

// standardConfig returns the configuration of the node unless its labels say otherwise. It
// limits shares by MPS if the node has a supervisor.
func (c *Config) standardConfig() catalog.NodeConfig {
	config := c.NodeConfig
	config.Shares.MPS = c.Supervisor != ""
	return config
}

// newNodeConfig returns the writer of the node's configuration, whose inputs are not known. It
// follows the record of an earlier agent, unless records is nil.
func (c *Config) newNodeConfig(records cluster.Records, table *state.Table[state.Configuration]) *cluster.NodeConfig {
	return cluster.NewNodeConfig(cluster.NodeConfigOptions{
		Table: table, Standard: c.standardConfig(), Named: c.NodeConfigs != "", Layouts: c.MIGLayouts != "", LayoutLabel: c.MIGConfigLabel,
		Records: records,
	})
}

// parseNodeConfigs reads the configurations that labels of nodes name.
func (c *Config) parseNodeConfigs(content []byte, err error) (catalog.NodeConfigs, error) {
	var named catalog.NodeConfigs
	if err == nil {
		named, err = catalog.ParseNodeConfigs(content, c.standardConfig())
	}
	if err != nil {
		return named, fmt.Errorf("--node-configs=%s is not followed: %w", c.NodeConfigs, err)
	}
	return named, nil
}

// parseLayouts reads the layouts of MIG devices. A file without text has none.
func (c *Config) parseLayouts(content []byte, err error) (migconfig.File, error) {
	var layouts migconfig.File
	if err == nil && len(bytes.TrimSpace(content)) > 0 {
		layouts, err = migconfig.Parse(content)
	}
	if err != nil {
		return layouts, fmt.Errorf("--mig-layouts=%s is not followed: %w", c.MIGLayouts, err)
	}
	return layouts, nil
}

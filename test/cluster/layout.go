// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// StateRoot is where clusters live.
	StateRoot = "/var/lib/gpu-dra-cluster"
	// probeImage prints what a container was given; see package probe.
	probeImage = "localhost/gpu-dra/probe:test"
	pauseImage = "localhost/gpu-dra/pause:test"

	// vethPrefix marks the network interfaces of all clusters.
	vethPrefix = "gpudra-"

	// socketsDir is a short path for the sockets of pods. Each further node has a folder of its own there.
	socketsDir = "/run/mps"

	// Pods and services live inside the cluster's network namespaces, so every
	// cluster can use the same ranges. Each node has a 256th of podCIDR.
	podCIDR            = "10.244.0.0/16"
	serviceCIDR        = "10.96.0.0/16"
	apiserverClusterIP = "10.96.0.1"
	apiserverPort      = 6443
)

// maxStateDir is the maximum length of the state directory's path. It keeps the
// sockets of containerd's shims (64 characters and a directory) within the 107
// bytes of a Unix socket's path.
const maxStateDir = 40

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$`)
	furtherNode = regexp.MustCompile(`^\.[2-9]$`)
)

// Layout says where one node of a cluster keeps its things: the first, which has the name of the cluster
// and its control plane, or a further one. It is a pure function of
// name and directories, so that a cluster can be taken down with nothing but
// its name.
type Layout struct {
	Name string
	// State holds everything the cluster writes.
	State string
	// Bin holds the binaries; clusters share it and none removes it.
	Bin string
}

// NewLayout checks the name and the length of the paths.
func NewLayout(name, bin string) (Layout, error) {
	of, suffix := name, filepath.Ext(name)
	if furtherNode.MatchString(suffix) {
		of = strings.TrimSuffix(name, suffix)
	}
	if !clusterName.MatchString(of) {
		return Layout{}, fmt.Errorf("cluster name %q: want 1 to 15 lower-case letters, digits and inner dashes, and .2 to .9 for a further node", name)
	}
	state := filepath.Join(StateRoot, name)
	if len(state) > maxStateDir {
		return Layout{}, fmt.Errorf("state directory %s: %d characters, want at most %d: the paths of Unix sockets below it would be too long", state, len(state), maxStateDir)
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return Layout{}, fmt.Errorf("directory of the binaries: %w", err)
	}
	return Layout{Name: name, State: state, Bin: bin}, nil
}

func (l Layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.State}, elem...)...)
}

// node returns the layout of the node with that number. The first has number 1.
func (l Layout) node(number int) Layout {
	suffix := filepath.Ext(l.Name)
	l.Name, l.State = strings.TrimSuffix(l.Name, suffix), strings.TrimSuffix(l.State, suffix)
	if number > 1 {
		suffix = fmt.Sprintf(".%d", number)
		l.Name, l.State = l.Name+suffix, l.State+suffix
	}
	return l
}

func (l Layout) first() Layout { return l.node(1) }

// number of the node in its cluster.
func (l Layout) number() int {
	if suffix := filepath.Ext(l.Name); suffix != "" {
		return int(suffix[1] - '0')
	}
	return 1
}

func (l Layout) isFirst() bool { return l.number() == 1 }

// further returns the further nodes of a cluster, whole or in pieces. A further node has none.
func (l Layout) further() []Layout {
	var nodes []Layout
	for n := 2; n <= 9 && l.isFirst(); n++ {
		if _, err := os.Stat(l.node(n).State); err == nil {
			nodes = append(nodes, l.node(n))
		}
	}
	return nodes
}

// NetNS is the file that the network namespace is mounted on.
func (l Layout) NetNS() string { return l.path("netns") }

// Cgroup is the node's cgroup in every hierarchy. Two kubelets that shared
// one would delete each other's pods.
func (l Layout) Cgroup() string { return "/gpu-dra-" + l.Name }

// Veth is the far end of the pair that joins the namespace to the host, or to the
// namespace of the first node. It is a digest because an interface's name has at most 15 characters.
func (l Layout) Veth() string {
	sum := sha256.Sum256([]byte(l.Name))
	return fmt.Sprintf("%s%x", vethPrefix, sum[:4])
}

// NodeName is the node's name in Kubernetes.
func (l Layout) NodeName() string { return "gpu-dra-" + l.Name }

// KubeletRoot is the kubelet's --root-dir.
func (l Layout) KubeletRoot() string { return l.path("kubelet") }

// DevicePluginsDir is the kubelet's folder for device plugins, which it has at another path.
func (l Layout) DevicePluginsDir() string { return l.path("device-plugins") }

// CDIDir returns the only directory from which the container runtime reads CDI specs.
func (l Layout) CDIDir() string { return l.path("cdi") }

// LogsDir holds one file per component, and the pods' logs below "pods".
func (l Layout) LogsDir() string { return l.path("logs") }

// Kubeconfig is the administrator's.
func (l Layout) Kubeconfig() string { return l.first().path("admin.kubeconfig") }

// ContainerdSocket is containerd's gRPC address, a path.
func (l Layout) ContainerdSocket() string { return l.path("containerd.sock") }

// InfoFile describes the running cluster to other programs; see [Info].
func (l Layout) InfoFile() string { return l.path("cluster.json") }

func (l Layout) socketsDir() string   { return l.path("sockets") }
func (l Layout) pkiDir() string       { return l.path("pki") }
func (l Layout) configDir() string    { return l.path("config") }
func (l Layout) processesDir() string { return l.path("processes") }
func (l Layout) kubeconfigOf(component string) string {
	return filepath.Join(l.configDir(), component+".kubeconfig")
}
func (l Layout) logFile(component string) string {
	return filepath.Join(l.LogsDir(), component+".log")
}
func (l Layout) binary(name string) string { return filepath.Join(l.Bin, name) }

// All lists the clusters below [StateRoot], whole or in pieces.
func All(bin string) ([]Layout, error) {
	entries, err := os.ReadDir(StateRoot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	var layouts []Layout
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		l, err := NewLayout(entry.Name(), bin)
		if err != nil {
			return nil, err
		}
		layouts = append(layouts, l)
	}
	return layouts, nil
}

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
)

const (
	// StateRoot is where clusters live unless they are given a directory.
	StateRoot = "/var/lib/gpu-dra-cluster"
	// ProbeImage prints what a container was given; see package probe.
	ProbeImage = "localhost/gpu-dra/probe:test"
	pauseImage = "localhost/gpu-dra/pause:test"

	// vethPrefix marks the network interfaces of all clusters.
	vethPrefix = "gpudra-"

	// Pods and services live inside the cluster's network namespace, so every
	// cluster can use the same ranges.
	podCIDR            = "10.244.0.0/24"
	serviceCIDR        = "10.96.0.0/16"
	apiserverClusterIP = "10.96.0.1"
	apiserverPort      = 6443
)

// maxStateDir is the maximum length of the state directory's path. It keeps the
// sockets of containerd's shims (64 characters and a directory) within the 107
// bytes of a Unix socket's path.
const maxStateDir = 40

var clusterName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$`)

// Layout says where one cluster keeps its things. It is a pure function of
// name and directories, so that a cluster can be taken down with nothing but
// its name.
type Layout struct {
	Name string
	// State holds everything the cluster writes.
	State string
	// Bin holds the binaries; clusters share it and none removes it.
	Bin string
}

// NewLayout checks the name and the length of the paths. An empty state means
// StateRoot/name. It fails where a name or path cannot work.
func NewLayout(name, state, bin string) (Layout, error) {
	if !clusterName.MatchString(name) {
		return Layout{}, fmt.Errorf("cluster name %q: want 1 to 15 lower-case letters, digits and inner dashes", name)
	}
	if state == "" {
		state = filepath.Join(StateRoot, name)
	}
	state, err := filepath.Abs(state)
	if err != nil {
		return Layout{}, fmt.Errorf("state directory: %w", err)
	}
	if len(state) > maxStateDir {
		return Layout{}, fmt.Errorf("state directory %s: %d characters, want at most %d: the paths of Unix sockets below it would be too long", state, len(state), maxStateDir)
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return Layout{}, fmt.Errorf("directory of the binaries: %w", err)
	}
	return Layout{Name: name, State: state, Bin: bin}, nil
}

func (l Layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.State}, elem...)...)
}

// NetNS is the file that the network namespace is mounted on.
func (l Layout) NetNS() string { return l.path("netns") }

// Cgroup is the cluster's cgroup in every hierarchy. Two kubelets that shared
// one would delete each other's pods.
func (l Layout) Cgroup() string { return "/gpu-dra-" + l.Name }

// Veth is the host's end of the pair that joins the namespace to the host. It
// is a digest because an interface's name has at most 15 characters.
func (l Layout) Veth() string {
	sum := sha256.Sum256([]byte(l.Name))
	return fmt.Sprintf("%s%x", vethPrefix, sum[:4])
}

// NodeName is the name of the cluster's only node.
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
func (l Layout) Kubeconfig() string { return l.path("admin.kubeconfig") }

// ContainerdSocket is containerd's gRPC address, a path.
func (l Layout) ContainerdSocket() string { return l.path("containerd.sock") }

// InfoFile describes the running cluster to other programs; see [Info].
func (l Layout) InfoFile() string { return l.path("cluster.json") }

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
		l, err := NewLayout(entry.Name(), "", bin)
		if err != nil {
			return nil, err
		}
		layouts = append(layouts, l)
	}
	return layouts, nil
}

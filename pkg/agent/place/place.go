// SPDX-License-Identifier: Apache-2.0

// Package place is where an agent serves the kubelet: the sockets and the metadata files of the
// driver's agents in folders of the kubelet and of container runtimes. It finds drivers of the same
// name in the kubelet's registry, and removes what killed agents have left.
package place

import (
	"context"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Place is where a plugin serves the kubelet.
type Place struct {
	// DriverName as in ResourceSlices.
	DriverName string
	// PodUID of the agent, for updates without downtime; may be empty.
	PodUID types.UID
	// DataDir is the plugin's own directory below the kubelet's plugins
	// directory; it is created. RegistryDir is the kubelet's and must exist.
	DataDir, RegistryDir string
	// CDIDir is the directory from which the container runtime reads CDI specs.
	CDIDir string
	// Network has the sockets of these directories; nil is the machine's.
	Network Network
}

// Network has unix sockets. A simulation has its own, without the machine's clock.
type Network interface {
	Listen(ctx context.Context, path string) (net.Listener, error)
	Dial(ctx context.Context, path string) (net.Conn, error)
}

// Instance returns the part of the UID that distinguishes the agents of a node in their
// socket names. Linux limits socket paths to 107 bytes, and the kubelet directory of
// some distributions is too long for a whole UID.
func Instance(pod types.UID) types.UID {
	first, _, _ := strings.Cut(string(pod), "-")
	return types.UID(first)
}

// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"context"
	"slices"
	"sync"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/usage"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/podresources"
	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

// containerNames are the names of containers. A process shows the name of its container in
// its mounts, which it may have made itself, so a name counts only if the kubelet lists it
// for the pod. It never changes then.
type containerNames struct {
	proc procfs.Root
	// list reads the containers of all pods from the kubelet. Without it, names come from
	// the mounts.
	list func(ctx context.Context) ([]podresources.Container, error)

	mu    sync.Mutex
	known map[containerKey]string
}

// containerKey identifies a container of a node.
type containerKey struct{ pod, id string }

func keyOf(c usage.Container) containerKey { return containerKey{c.PodUID, c.ID} }

// shownNames are the names that the processes of containers show.
type shownNames struct {
	names *containerNames
	mu    sync.Mutex
	shown map[containerKey][]string
}

func (n *containerNames) shown() *shownNames {
	return &shownNames{names: n, shown: map[containerKey][]string{}}
}

// read reads the names that a process of a container shows, unless its name is known.
func (s *shownNames) read(pid int, c usage.Container) error {
	if s.names.name(c) != "" {
		return nil
	}
	names, err := s.names.proc.Containers(pid, c.PodUID)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if key := keyOf(c); !slices.Contains(s.shown[key], name) {
			s.shown[key] = append(s.shown[key], name)
		}
	}
	return err
}

// name returns the name of a container; empty if it is not known.
func (n *containerNames) name(c usage.Container) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[keyOf(c)]
}

// set names the containers, and forgets all others. namespaces has the namespace of each pod by UID. A
// container without a name, or with several, has none.
func (n *containerNames) set(ctx context.Context, containers []*usage.Container, namespaces map[string]string, shown *shownNames) error {
	listed, err := n.listed(ctx, containers, shown)
	n.mu.Lock()
	defer n.mu.Unlock()
	known := map[containerKey]string{}
	for _, c := range containers {
		key := keyOf(*c)
		if c.Name = n.known[key]; c.Name == "" {
			c.Name = only(shown.shown[key], func(name string) bool {
				return n.list == nil || slices.Contains(listed, podresources.Container{Namespace: namespaces[c.PodUID], Pod: c.Pod, Name: name})
			})
		}
		if c.Name != "" {
			known[key] = c.Name
		}
	}
	n.known = known
	return err
}

// listed returns the kubelet's containers if one of these has no name yet.
func (n *containerNames) listed(ctx context.Context, containers []*usage.Container, shown *shownNames) ([]podresources.Container, error) {
	unknown := func(c *usage.Container) bool { return len(shown.shown[keyOf(*c)]) > 0 && n.name(*c) == "" }
	if n.list == nil || !slices.ContainsFunc(containers, unknown) {
		return nil, nil
	}
	return n.list(ctx)
}

// only returns the one name that is valid; empty if none or several are.
func only(names []string, valid func(string) bool) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !valid(name) })
	if len(names) != 1 {
		return ""
	}
	return names[0]
}

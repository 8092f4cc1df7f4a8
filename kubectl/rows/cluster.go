// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Cluster is the objects of a cluster that a user may read.
type Cluster struct {
	*fleet.Fleet
	Objects fleet.Objects
	// Refused has a sentence for each list that the user may not read as a whole.
	Refused map[doctor.List]string
	// Agents are the agents by node, as [AgentsOf] returns them; nil if they are not known.
	Agents map[string]Agent
}

// New returns the cluster with these objects.
func New(objects fleet.Objects, driver string, refused map[doctor.List]string) *Cluster {
	return &Cluster{fleet.New(objects, fleet.Options{Driver: driver, Features: fleet.FeaturesOf(objects)}), objects, refused, nil}
}

// IsPartial reports whether claims of other namespaces are not known: they may hold devices that
// seem free.
func (c *Cluster) IsPartial() bool {
	return c.Refused[doctor.Claims] != "" || c.Refused[doctor.Pods] != ""
}

// Publishes reports whether drivers publish devices of a node.
func (c *Cluster) Publishes(node string) bool {
	return slices.ContainsFunc(c.Objects.Slices, func(s *resourceapi.ResourceSlice) bool {
		return len(s.Spec.Devices) > 0 && (s.Spec.NodeName == nil || *s.Spec.NodeName == node)
	})
}

// Sentences returns what the answers of the cluster lack: the rights that the user lacks, in order, and then slices of nodes.
func (c *Cluster) Sentences() []string {
	all := slices.Sorted(maps.Values(c.Refused))
	if incomplete := c.IncompleteNodes(); len(incomplete) > 0 {
		all = append(all, fmt.Sprintf("Some ResourceSlices of %s are missing: more GPUs may be there, and the scheduler allocates none of their devices; see kubectl gpu doctor.", List(incomplete)))
	}
	return all
}

package gpu

import "strconv"

// Lent is a GPU or MIG device that a device plugin of the node, and not this
// driver, has given to a pod.
type Lent struct {
	// Device is the UUID of the GPU or MIG device, or "nvidiaN" of the GPU with
	// the minor number N where the plugin knows devices by their nodes.
	Device string
	// Pod that has it: "namespace/name".
	Pod string
}

// Lend gives the GPU with the pods in it that have it or a MIG device of it
// through a device plugin. Of several that share one, the first is named.
func (g GPU) Lend(all []Lent) GPU {
	parts := make([]Partition, len(g.MIG.Partitions))
	copy(parts, g.MIG.Partitions)
	for _, lent := range all {
		if g.Lent == "" && (lent.Device == g.UUID || lent.Device == "nvidia"+strconv.Itoa(g.Minor)) {
			g.Lent = lent.Pod
		}
		for i, p := range parts {
			if p.Lent == "" && p.UUID != "" && lent.Device == p.UUID {
				parts[i].Lent = lent.Pod
			}
		}
	}
	if len(parts) > 0 {
		g.MIG.Partitions = parts
	}
	return g
}

// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// Foreign is the processes of pods without a claim on a device, in JSON and YAML. The agent
// reports them.
type Foreign struct {
	Processes int `json:"processes"`
	// PIDs are process IDs of the node, the first of each device.
	PIDs []int `json:"pids,omitempty"`
	// Memory is nil if it is not known, or if there are no processes.
	Memory *resource.Quantity `json:"memoryUsed,omitempty"`
	// Checked is the time of the agent's check.
	Checked metav1.Time `json:"checked"`
}

// Text returns the processes in words, with their memory and the age of the check. An example is
// "1 process, 4.0Gi, 2m ago". It returns a dash if they are not known.
func (f *Foreign) Text(now time.Time) string {
	switch {
	case f == nil:
		return "-"
	case f.Processes == 0:
		return "0"
	}
	text := fleet.Number(f.Processes, "process")
	if f.Memory != nil {
		text += ", " + Gibibytes(*f.Memory)
	}
	return text + ", " + fleet.Age(f.Checked.Time, now) + " ago"
}

// foreignOn returns the sum of the foreign processes on the devices of a node. It returns nil if
// none are known, and those of a device are not.
func (u Uses) foreignOn(node string, devices []string) *Foreign {
	report := u[node].Foreign
	if report == nil || len(devices) == 0 {
		return nil
	}
	sum := Foreign{Checked: metav1.NewTime(report.Checked)}
	var memory resource.Quantity
	complete, memoryKnown := true, true
	for _, device := range devices {
		i := slices.IndexFunc(report.Devices, func(d agentv1.ForeignDevice) bool { return d.Device == device })
		switch {
		case i < 0 || report.Devices[i].Processes < 0:
			complete = false
			continue
		case report.Devices[i].Processes == 0:
			continue
		}
		d := report.Devices[i]
		sum.Processes += d.Processes
		sum.PIDs = append(sum.PIDs, d.PIDs[:min(len(d.PIDs), agentv1.MaxForeignPIDs)]...)
		if d.MemoryUsedBytes == nil {
			memoryKnown = false
			continue
		}
		memory.Add(bytes(min(*d.MemoryUsedBytes, math.MaxInt64)))
	}
	switch {
	case sum.Processes > 0 && memoryKnown:
		sum.Memory = &memory
	case sum.Processes == 0 && !complete:
		return nil
	}
	return &sum
}

// foreignOnGPU returns the foreign processes on the devices of a GPU that claims hold. On the
// others the agent does not check.
func (u Uses) foreignOnGPU(node string, g fleet.GPU) *Foreign {
	var held []string
	for d := range g.Holders() {
		fleet.AddOnce(&held, d.ID.Device)
	}
	return u.foreignOn(node, held)
}

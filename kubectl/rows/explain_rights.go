// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
)

// RoleDevices is the ClusterRole of the chart that lists slices, classes and taint rules.
const RoleDevices = "gpu-dra-driver-devices"

// isUnreadable reports whether the user may not read what decides why claims get no devices.
func (e *explaining) isUnreadable() bool {
	return e.cluster.Refused[doctor.Slices] != "" || e.cluster.Refused[doctor.Classes] != ""
}

// addUnread names the lists that the user may not read, the unknown facts and a role. The role
// has the rights.
func (e *explaining) addUnread() {
	refused := func(lists ...doctor.List) (names []string) {
		for _, list := range lists {
			if e.cluster.Refused[list] != "" {
				name, _, _ := strings.Cut(string(list), ".")
				names = append(names, name)
			}
		}
		return names
	}
	devices, others := refused(doctor.Slices, doctor.Classes, doctor.Rules), refused(doctor.Pods, doctor.Claims)
	var texts []string
	if e.Unread != "" {
		texts = append(texts, e.Unread)
	}
	if len(devices) > 0 {
		unknown := "cordons and taints by rules"
		if e.isUnreadable() {
			unknown = "health of devices, free devices, and why a claim does not fit"
		}
		texts = append(texts, fmt.Sprintf("you have no right to list %s (not known: %s): ask an administrator for the ClusterRole %s", strings.Join(devices, ", "), unknown, RoleDevices))
	}
	e.Partial = e.cluster.IsPartial() && e.State != StateRunning && (len(e.Fits) > 0 || len(e.Misses) > 0)
	searched := e.State != StateRunning && (len(e.Fits) > 0 || len(e.Misses) > 0 || len(e.Excluded) > 0)
	if len(others) > 0 && searched {
		texts = append(texts, fmt.Sprintf("without the right to list %s of the whole cluster, devices that seem free may be in use: ask an administrator for the ClusterRole %s", strings.Join(others, ", "), doctor.RoleViewer))
	}
	if e.cluster.Refused[doctor.Nodes] != "" && searched {
		texts = append(texts, "without the right to list nodes, their taints, labels, cpu and memory are not known: ask an administrator for the ClusterRole "+doctor.RoleViewer)
	}
	e.Unread = strings.Join(texts, "; ")
}

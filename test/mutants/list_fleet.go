// SPDX-License-Identifier: Apache-2.0

package main

// fleetMutants returns the mutants of the packages that show the fleet: fleet and kubectlgpu.
func fleetMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/fleet/topology.go",
			old:    `return name == other.Name || strings.HasPrefix(other.Name, name+"-")`,
			new:    `return name == other.Name`,
			notice: "linked GPUs of different domains are shown as SYS on large machines",
			run:    "^TestPaths",
		},
		{
			file:   "pkg/fleet/topology.go",
			old:    `case a.Wiring == nil && (x == "" || y == ""):`,
			new:    `case x == "" || y == "":`,
			notice: "GPUs at two ports of a PCIe root seem to be on one switch",
			run:    "^TestPaths",
		},
		{
			file:   "pkg/doctor/cpus.go",
			old:    `case policy == "none" && claimed:`,
			new:    `case policy == "none" && claimed && nodes == 0:`,
			notice: "doctor warns about the policy that the driver of CPUs needs",
			run:    "^TestWhoAssigns",
		},
		{
			file:   "pkg/fleet/memoryhint.go",
			old:    `want.Cmp(has) <= 0 ||`,
			new:    ``,
			notice: "explain advises a smaller amount to a selector that the GPU meets",
			run:    "^TestASelectorThatWasWritten",
		},
		{
			file:   "pkg/fleet/selectors.go",
			old:    `if err != nil || !met {`,
			new:    `if err != nil || !met && false {`,
			notice: "a selector that a class keeps from other devices is said to fail on them",
			run:    "^TestSelectorsThatRead",
		},
		{
			file:   "pkg/fleet/selectors.go",
			old:    `if known || n.Full() || len(n.shapes) == 0 {`,
			new:    `if known || len(n.shapes) == 0 {`,
			notice: "doctor takes as much memory as tenants write selectors",
			run:    "^TestSelectorsOfOther",
		},
		{
			file:   "pkg/fleet/selectors.go",
			old:    `if n.search.ended() {`,
			new:    `if false {`,
			notice: "explain evaluates a selector on thousands of shapes of devices after its limit",
			run:    "^TestTheNamesInSelectors",
		},
		{
			file:   "pkg/fleet/selectors.go",
			old:    `if !matched && problems == nil {`,
			new:    `if false {`,
			notice: "explain and doctor do not report an attribute that no device has, if the selector has a default for it",
			run:    "^TestSelectorsThatRead",
		},
		{
			file:   "pkg/fleet/vocabulary.go",
			old:    `case level == kind.LevelAll, level == kind.LevelStandard && !standard:`,
			new:    `case level == kind.LevelAll, false && !standard:`,
			notice: "explain says that no GPU has a value of an attribute that the chart does not publish",
			run:    "^TestSelectorsThatRead",
		},
		{
			file:   "pkg/fleet/vocabulary.go",
			old:    `max(1, len(name.ID)/3)+1`,
			new:    `len(name.ID)`,
			notice: "explain suggests a name that has nothing to do with the one that is written",
			run:    "^TestSelectorsThatRead",
		},
		{
			file:   "pkg/doctor/selectors.go",
			old:    `if own.Status.Allocation == nil {`,
			new:    `if true {`,
			notice: "doctor reports claims that have their devices",
		},
		{
			file:   "pkg/doctor/node.go",
			old:    `if !f.IsKnown() {`,
			new:    `if false {`,
			notice: "doctor judges settings that the agent could not read as if they were off",
		},
		{
			file:   "pkg/doctor/doctor.go",
			old:    `if reason := c.Unread[list]; reason != "" {`,
			new:    `if reason := c.Unread[list]; false {`,
			notice: "doctor reports problems of objects that the user may not read",
		},
		{
			file:   "pkg/doctor/claims.go",
			old:    `deleted == nil && len(claim.Status.ReservedFor) == 0 && c.Now.Sub(claim.CreationTimestamp.Time) > patience`,
			new:    `deleted == nil && len(claim.Status.ReservedFor) == 0`,
			notice: "doctor reports claims that the scheduler has just allocated as stuck",
		},
		{
			file:   "pkg/fleet/fleet.go",
			old:    `changed.Spec.Devices[i].Taints = append(changed.Spec.Devices[i].Taints, rule.Spec.Taint)`,
			new:    ``,
			notice: "a device that a DeviceTaintRule taints seems free",
			run:    "^TestTheNearestMiss",
		},
		{
			file:   "pkg/fleet/holder.go",
			old:    `state.AllocatedDevices.Insert(device)`,
			new:    ``,
			notice: "a device that a claim holds alone seems free",
			run:    "^TestAnExclusiveDevice",
		},
		{
			file:   "pkg/fleet/conditions.go",
			old:    `q.state = NewState()`,
			new:    ``,
			notice: "no claim waits for another one",
			run:    "^TestTheNearestMiss",
		},
		{
			file:   "pkg/fleet/conditions.go",
			old:    `copied.Spec.Devices[j] = *device`,
			new:    ``,
			notice: "a device gets the reason of another one",
			run:    "^TestWhyEachDevice",
		},
		{
			file:   "pkg/fleet/admit.go",
			old:    `free.Sub(f.requested[node.Name][name])`,
			new:    ``,
			notice: "a pod fits on a node whose processors other pods have requested",
			run:    "^TestNodesThatExclude",
		},
		{
			file:   "pkg/fleet/admit.go",
			old:    `if pod.Spec.NodeName != "" {`,
			new:    `if pod.Spec.NodeName == "?" {`,
			notice: "a pod seems not to fit on its node, because its own processors are taken",
			run:    "^TestNodesThatExclude",
		},
		{
			file:   "pkg/fleet/admit.go",
			old:    ` || pod.Status.Phase == corev1.PodFailed`,
			new:    ``,
			notice: "a pod seems to wait for the processors of one that has failed",
			run:    "^TestNodesThatExclude",
		},
		{
			file: "pkg/fleet/search.go",
			old: `		if err != nil {
			v.Problem = err
			return v
		}`,
			new: `		if err != nil {
			continue
		}`,
			notice: "a claim whose selector fails seems to wait for devices that are in use",
			run:    "^TestASelectorThatFails",
		},
		{
			file:   "pkg/fleet/search.go",
			old:    `match{selected: selected, failed: err != nil}`,
			new:    `match{selected: selected || err != nil, failed: err != nil}`,
			notice: "a selector that fails on a device is not shown as the reason why its pod waits",
			run:    "^TestASelectorThatFails|^TestTheSelector",
		},
		{
			file:   "pkg/fleet/plan.go",
			old:    `p.fleet.addPod(node, pod)`,
			new:    ``,
			notice: "a plan places more pods than a node has processors for",
			run:    "^TestPlan",
		},
		{
			file:   "pkg/fleet/search.go",
			old:    `case unended == mostUnended:`,
			new:    `case false:`,
			notice: "a claim whose search does not end is tried on each of a thousand nodes",
			run:    "^TestASearch",
		},
		{
			file:   "pkg/kubectlgpu/secrets.go",
			old:    `emptyForeign(driver, "", reflect.ValueOf(c))`,
			new:    ``,
			notice: "a bug report has a password from the parameters for another driver",
			run:    "^TestSysdump",
		},
		{
			file:   "pkg/kubectlgpu/plan.go",
			old:    `objects.Claims, objects.Pods = nil, nil`,
			new:    ``,
			notice: "a plan for an empty cluster counts the claims that hold devices now",
			run:    "^TestPlan",
		},
		{
			file:   "pkg/kubectlgpu/objects.go",
			old:    `slices.Contains(r.required, name)`,
			new:    `false`,
			notice: "devices seem free to a user who may not read claims",
			run:    "^TestRights",
		},
		{
			file:   "pkg/gpupages/internal/picture/arrange.go",
			old:    `d.Place.NUMANode = numaOf[d.Place.PCIeRoot]`,
			new:    ``,
			notice: "the NICs of a PCIe root are drawn apart from its GPUs",
			run:    "^TestPicture",
			tests:  "pkg/gpupages",
		},
		{
			file:   "pkg/gpupages/internal/web/web.go",
			old:    `case !s.isHost(r.Host):`,
			new:    `case false:`,
			notice: "a site reads the pages by a DNS name that it points to 127.0.0.1",
		},
		{
			file:   "pkg/gpupages/readings.go",
			old:    `r.next = now.Add(max(r.fresh, idleRatio*now.Sub(begin)))`,
			new:    `r.next = now.Add(r.fresh)`,
			notice: "open pages keep a slow API server busy",
			run:    "^TestReadings",
		},
		{
			file:   "pkg/gpupages/pods.go",
			old:    `r.Refused[doctor.Classes] != ""`,
			new:    `false`,
			notice: "a user who may not list classes is advised to create one that exists",
			run:    "^TestPagesWithoutRights",
		},
	}
}

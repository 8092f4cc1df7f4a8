// SPDX-License-Identifier: Apache-2.0

package main

// fleetMutants returns the mutants of the packages that show the fleet: fleet and kubectlgpu.
func fleetMutants() []mutant {
	return []mutant{
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
			file:   "pkg/fleet/plan.go",
			old:    `p.fleet.addPod(node, pod)`,
			new:    ``,
			notice: "a plan places more pods than a node has processors for",
			run:    "^TestPlan",
		},
		{
			file:   "pkg/fleet/explain.go",
			old:    `case unended == mostUnended:`,
			new:    `case false:`,
			notice: "a claim whose search does not end is tried on each of a thousand nodes",
			run:    "^TestASearch",
		},
		{
			file:   "pkg/kubectlgpu/sysdump.go",
			old:    `withoutParameters(v.Driver, c.Spec.Devices.Config[i].Opaque)`,
			new:    `_ = i`,
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
			old:    `slices.Contains(required, name)`,
			new:    `false`,
			notice: "devices seem free to a user who may not read claims",
			run:    "^TestRights",
		},
		{
			file:   "pkg/kubectlgpu/internal/picture/picture.go",
			old:    `d.Place.NUMANode = numaOf[d.Place.PCIeRoot]`,
			new:    ``,
			notice: "the NICs of a PCIe root are drawn apart from its GPUs",
			run:    "^TestPicture",
			tests:  "pkg/kubectlgpu",
		},
		{
			file:   "pkg/kubectlgpu/internal/web/web.go",
			old:    `case !isLocal(r.Host):`,
			new:    `case false:`,
			notice: "a site reads the pages by a DNS name that it points to 127.0.0.1",
		},
		{
			file:   "pkg/kubectlgpu/readings.go",
			old:    `r.next = now.Add(max(r.fresh, idleRatio*now.Sub(begin)))`,
			new:    `r.next = now.Add(r.fresh)`,
			notice: "open pages keep a slow API server busy",
			run:    "^TestReadings",
		},
		{
			file:   "pkg/kubectlgpu/pages.go",
			old:    `strings.Contains(sentence, classList)`,
			new:    `sentence == ""`,
			notice: "a user who may not list classes is advised to create one that exists",
			run:    "^TestPagesWithoutRights",
		},
	}
}

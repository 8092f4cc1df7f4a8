// SPDX-License-Identifier: Apache-2.0

package main

// usageMutants returns the mutants of the metrics per claim.
func usageMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/usage/attribute.go",
			old:    `if !counted[onGPU{address, p.PodUID, p.ID}] {`,
			new:    `if true {`,
			notice: "memory that the driver counts for a container is counted again for its processes",
		},
		{
			file:   "pkg/usage/attribute.go",
			old:    `!slices.Contains(h.claim.Pods, types.UID(p.PodUID))`,
			new:    `p.PodUID == "none"`,
			notice: "a tenant is shown the memory of another tenant of the GPU",
		},
		{
			file:   "pkg/usage/attribute.go",
			old:    `*p.GPUInstance == *h.instance`,
			new:    `true`,
			notice: "a claim of a MIG device is shown the memory of the GPU's other MIG devices",
		},
		{
			file:   "pkg/usage/attribute.go",
			old:    `if len(h.used) == 0 && !foreign {`,
			new:    `if len(h.used) == 0 {`,
			notice: "a claim counts as unused while a pod that has joined it computes",
		},
		{
			file:   "pkg/usage/attribute.go",
			old:    `parts[i] = left`,
			new:    `_ = left`,
			notice: "bytes of a container with several claims are lost",
		},
		{
			file:   "pkg/usage/attribute.go",
			old:    `if len(of) < 2 || uses == nil {`,
			new:    `if true {`,
			notice: "a claim is shown a part of the memory of a container that uses another claim",
		},
		{
			file:   "pkg/usage/meter.go",
			old:    `passed := max(now.Sub(m.since), 0).Seconds()`,
			new:    `passed := now.Sub(m.since).Seconds()`,
			notice: "the counter of a bill goes back when the clock does",
		},
		{
			file:   "pkg/usage/meter.go",
			old:    `	m.since = now`,
			new:    ``,
			notice: "a namespace pays for the same time at every scrape",
		},
		{
			file:   "pkg/usage/node.go",
			old:    `max(t.Slots, 1)`,
			new:    `1`,
			notice: "a claim with several slots pays for one",
		},
		{
			file:   "pkg/agent/podnames.go",
			old:    `p.attempts[pod] = time.Time{}`,
			new:    `delete(p.attempts, pod)`,
			notice: "each scrape reads the claims of a GPU from the API server for a pod of none of them",
			run:    "^TestNamesOfPods",
		},
		{
			file:   "pkg/procfs/procfs.go",
			old:    `"/pods/"+pod+"/containers/"`,
			new:    `"/containers/"`,
			notice: "a container that mounts folders of another pod is shown under its name",
			run:    "^TestContainer",
		},
		{
			file:   "pkg/procfs/procfs.go",
			old:    `strings.Contains(root, pod) || `,
			new:    `root == pod || `,
			notice: "a pod names its container by a folder in a volume",
			run:    "^TestContainer",
		},
		{
			file:   "pkg/procfs/procfs.go",
			old:    ` || len(validation.IsDNS1123Label(name)) > 0`,
			new:    ` || len(validation.IsDNS1123Label(name)) > 1<<10`,
			notice: "a container has a name that is not text",
			run:    "^TestContainer",
		},
		{
			file:   "pkg/agent/containernames.go",
			old:    `n.list == nil || slices.Contains(listed, `,
			new:    `n.list == nil || listed != nil || slices.Contains(listed, `,
			notice: "a container has a name that its pod does not have",
			run:    "^TestTheKubeletConfirms",
		},
		{
			file:   "pkg/agent/containernames.go",
			old:    `if len(names) != 1 {`,
			new:    `if len(names) == 0 {`,
			notice: "a container takes the name of another container of its pod",
			run:    "^TestTheKubeletConfirms",
		},
		{
			file: "pkg/telemetry/usagemetrics.go",
			old: `			invalid++
			continue`,
			new:    `			invalid++`,
			notice: "one name that is not text takes all metrics of a node away",
			run:    "^TestARowThat",
		},
		{
			file:   "pkg/nvml/smuse.go",
			old:    `s.SmUtil <= whole && `,
			new:    ``,
			notice: "a process uses the multiprocessors for 21 million times the time there is",
			run:    "^TestSMUse",
		},
	}
}

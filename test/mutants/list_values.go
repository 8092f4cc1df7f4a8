// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// valueMutants returns the mutants of the packages that parse and compare values: the
// vocabulary, the kernel's files, the kubelet's responses, the configuration of claims.
func valueMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/gpu/placement.go",
			tests:  "pkg/gpu/kind",
			old:    `p.Start < q.Start+q.Size && q.Start < p.Start+p.Size`,
			new:    `p.Start <= q.Start+q.Size && q.Start <= p.Start+p.Size`,
			notice: "adjacent MIG devices count as overlapping, and half of a GPU stays unused",
		},
		{
			file:   "pkg/gpu/placement.go",
			tests:  "pkg/gpu/kind",
			old:    `p.Start < q.Start+q.Size && q.Start < p.Start+p.Size`,
			new:    `p.Start < q.Start+q.Size`,
			notice: "a free MIG placement is refused, depending on the order of claims",
		},
		{
			file:   "pkg/gpu/placement.go",
			old:    `const firstWithoutReset = 9`,
			new:    `const firstWithoutReset = 8`,
			notice: "MIG devices of an A100 are offered, and every claim fails at the MIG mode",
		},
		{
			file:   "pkg/gpu/kind/name.go",
			old:    `case n.String() != s:`,
			new:    `case false:`,
			notice: "one device has two names, and two claims can hold it",
		},
		{
			file:   "pkg/gpu/pci.go",
			tests:  "pkg/gpu/kind",
			old:    `if a.Domain == 0 && a.Function == 0 {`,
			new:    `if a.Domain == 0 {`,
			notice: "two functions of one PCI device have one name",
		},
		{
			file:   "pkg/gpu/pci.go",
			old:    `if device > 31 {`,
			new:    `if device > 32 {`,
			notice: "an impossible address is accepted",
		},
		{
			file:   "pkg/gpu/mps.go",
			old:    `return max(1, MPSMaxClients*slices/ofGPU)`,
			new:    `return MPSMaxClients * slices / ofGPU`,
			notice: "a small MIG device admits no MPS client",
		},
		{
			file:   "pkg/gpu/mps.go",
			old:    `const firstWithMPSLimits = 7`,
			new:    `const firstWithMPSLimits = 6`,
			notice: "shares of a Pascal GPU are published with MPS limits that are not enforced",
		},
		{
			file:   "pkg/gpu/use/external.go",
			old:    `!known || place.Overlaps(p.Placement)`,
			new:    `known && place.Overlaps(p.Placement)`,
			notice: "a MIG device with an unknown placement is assigned next to an external allocation",
		},
		{
			file:   "pkg/gpu/errors.go",
			old:    `errors.Is(err, ErrInUse) || errors.Is(err, ErrNotReady) || errors.Is(err, ErrTimeout)`,
			new:    `errors.Is(err, ErrNotReady) || errors.Is(err, ErrTimeout)`,
			notice: "a pod whose GPU is being released fails, and is retried 90 seconds later",
			tests:  "pkg/claim",
			run:    "Wait|Again|Retries",
		},
		{
			file:   "pkg/sysfs/locality.go",
			old:    `if node < 0 || r.withoutCPUs(node) {`,
			new:    `if r.withoutCPUs(node) {`,
			notice: "a GPU without a NUMA node is published with node -1, and no pod is aligned with it",
		},
		{
			file:   "pkg/sysfs/locality.go",
			old:    `n == node || !r.withoutCPUs(n)`,
			new:    `n == node || n >= 0`,
			notice: "a GPU is aligned with the memory of another one, as if that were a socket",
		},
		{
			file:   "pkg/sysfs/adapter.go",
			old:    `near, most = []gpu.NIC{a.NIC}, n`,
			new:    `near, most = append(near, a.NIC), n`,
			notice: "containers use network adapters of another PCIe switch as if they were the nearest",
		},
		{
			file:   "pkg/claim/internal/step/writecdi.go",
			old:    `strings.ReplaceAll(g.Address.ShortName(), "-", "_")`,
			new:    `strings.ReplaceAll(g.Architecture, "-", "_")`,
			notice: "of two claims of a container, one overwrites the place of the other's GPU",
			tests:  "pkg/claim",
			run:    "PlaceOfAll",
		},
		{
			file:   "pkg/gpu/nvlink.go",
			old:    "			case silent(to):\n",
			new:    "",
			notice: "the state blames the links of healthy GPUs when one GPU does not answer",
			tests:  "pkg/inventory",
			run:    "LinksThat",
		},
		{
			file:   "pkg/plugin/metadata.go",
			old:    "	trim(attributes)\n",
			new:    "",
			notice: "programs cannot read the metadata of their share: upstream's decoder refuses it",
			run:    "UpstreamReads",
		},
		{
			file:   "pkg/sysfs/capability.go",
			old:    "		fmt.Sprintf(\"gi%d\", gpuInstance),\n",
			new:    "",
			notice: "a container cannot open its MIG device",
		},
		{
			file:   "pkg/sysfs/capability.go",
			old:    "	if errors.Is(err, fs.ErrNotExist) {\n		minor, err = minorIn(r.path(\"proc\", \"driver\", \"nvidia-caps\", \"mig-minors\"), fmt.Sprintf(\"gpu%d/%s/access\", gpuMinor, instance))\n	}\n",
			new:    "",
			notice: "MIG devices of drivers that have only the table of minors cannot be used",
		},
		{
			file:   "pkg/sysfs/root.go",
			old:    `	if id == "" {`,
			new:    `	if false {`,
			notice: "claims of the boot before count as prepared on a machine whose boot ID cannot be read",
		},
		{
			file:   "pkg/podresources/client.go",
			old:    `if !strings.HasPrefix(devices.GetResourceName(), resourcePrefix) {`,
			new:    `if strings.HasPrefix(devices.GetResourceName(), resourcePrefix) {`,
			notice: "a GPU that a device plugin allocated to a pod is assigned again",
		},
		{
			file:   "pkg/podresources/client.go",
			old:    `uuid, _, _ := strings.Cut(id, "::")`,
			new:    `uuid := id`,
			notice: "a replica of the device plugin is not recognised as the GPU that it is on",
		},
		{
			file:   "pkg/podresources/client.go",
			old:    `ctx, cancel := context.WithTimeout(ctx, timeout)`,
			new:    `ctx, cancel := context.WithCancel(ctx)`,
			notice: "a kubelet that does not answer keeps the agent from publishing",
			hangs:  20 * time.Second,
		},
		{
			file:   "api/gpu/v1alpha1/decode.go",
			old:    `if len(parameters) > resourceapi.OpaqueParametersMaxLength {`,
			new:    `if false {`,
			notice: "a configuration that the API server would refuse is read from another source",
		},
		{
			file:   "api/gpu/v1alpha1/decode.go",
			old:    "	if len(unexpected) == 0 {\n		return nil\n	}",
			new:    "	if len(unexpected) >= 0 {\n		return nil\n	}",
			notice: "a misspelled limit is ignored, and the share is not limited",
		},
		{
			file:   "api/gpu/v1alpha1/decode.go",
			old:    `	if err := problems.err(); err != nil {`,
			new:    `	if err := problems.err(); err != nil && config == nil {`,
			notice: "a configuration with impossible values is accepted",
		},
	}
}

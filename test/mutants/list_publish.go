// SPDX-License-Identifier: Apache-2.0

package main

// publishMutants returns the mutants of the packages that publish devices: catalog and
// controller.
func publishMutants() []mutant {
	const (
		shares = "^TestWhatAnAllocation|^TestHowShares|^TestMemory|^TestMIGDevicesAre|^TestWithout|^TestAnExclusive"
		taints = "^TestAnUnhealthy|^TestAGPUInMIG|^TestATaint|^TestExternalAllocations|^TestComputeModes|^TestAnExclusive|^TestAWithdrawnDevice|^TestASharedGPU"
		parts  = "^TestOffered|^TestWhyMIG|^TestStaticMIG|^TestParse|^TestAMIGDevice|^TestAGPUThatIsCut"
	)
	return []mutant{
		{
			file:   "pkg/catalog/counters.go",
			old:    `return slices.ContainsFunc(limits, func(r rule) bool { return r.of(p.profile) > r.total })`,
			new:    `return false`,
			notice: "a MIG device is published that the hardware can no longer create",
			run:    parts,
		},
		{
			file:   "pkg/catalog/counters.go",
			old:    `limits[i].total -= limits[i].takenBy(g.MIG.Profiles, foreign)`,
			new:    `limits[i].total -= 0 * limits[i].takenBy(g.MIG.Profiles, foreign)`,
			notice: "the scheduler assigns media engines that an administrator's MIG device uses",
			run:    parts,
		},
		{
			file:   "pkg/catalog/counters.go",
			old:    `needed := heaviest(candidates, c.takes) > c.total`,
			new:    `needed := heaviest(candidates, c.takes) > c.total+1`,
			notice: "the scheduler assigns one MIG device more than the hardware has engines for",
			run:    "^TestCountersAdmit",
		},
		{
			file:   "pkg/catalog/counters.go",
			old:    `return slices.ContainsFunc(foreign, func(f gpu.Partition) bool { return p.placement.Overlaps(f.Placement) })`,
			new:    `return false`,
			notice: "a MIG device is published at the placement of an administrator's",
			run:    parts,
		},
		{
			file:   "pkg/catalog/capacity.go",
			old:    `int64(usable/MemoryStep*MemoryStep)`,
			new:    `int64(usable)`,
			notice: "the last share of a GPU is refused because it is not a multiple of the step",
			run:    shares,
		},
		{
			file:   "pkg/catalog/capacity.go",
			old:    `less(g.MemoryBytes, g.ReservedBytes)`,
			new:    `less(g.MemoryBytes, 0)`,
			notice: "shares include memory that the driver reserves",
			run:    shares,
		},
		{
			file:   "pkg/catalog/capacity.go",
			old:    `if shared && o.byMPS(g) {`,
			new:    `if shared {`,
			notice: "memory is reserved for an MPS server on a node without one",
			run:    shares,
		},
		{
			file:   "pkg/catalog/share.go",
			old:    `o.Smallest = max(o.Smallest, (all.Value()+gpu.MPSMaxClients-1)/gpu.MPSMaxClients)`,
			new:    `_ = gpu.MPSMaxClients`,
			notice: "the scheduler assigns more shares than MPS admits processes",
			run:    shares,
		},
		{
			file:   "pkg/catalog/share.go",
			old:    `case memory.Cmp(smallest) < 0:`,
			new:    `case memory.Cmp(smallest) <= 0:`,
			notice: "the smallest share that is published is refused",
			run:    shares,
		},
		{
			file:   "pkg/catalog/share.go",
			old:    `case memory.Value()%MemoryStep != 0:`,
			new:    `case false:`,
			notice: "a share is limited to less memory than it was promised",
			run:    shares,
		},
		{
			file:   "pkg/catalog/share.go",
			old:    `!c.Exclusive && all.CmpInt64(2*MemoryStep) >= 0`,
			new:    `all.CmpInt64(2*MemoryStep) >= 0`,
			notice: "on a cluster without consumable capacity every GPU is refused by the API server",
			run:    shares + "|^TestSlicesOfEachModelAndOffer",
		},
		{
			file:   "pkg/gpu/kind/gpu.go",
			old:    `compute.RequestPolicy.ValidRange.Max = &most`,
			new:    `_ = most`,
			notice: "one claim gets more than 100 percent of the compute of a GPU",
			run:    "^TestCapacitiesOfEachKind",
		},
		{
			file:   "pkg/gpu/use/use.go",
			tests:  "pkg/catalog",
			old:    `if g.MIG.Enabled && u.Device.IsWholeGPU() {`,
			new:    `if g.MIG.Enabled && !u.Device.IsWholeGPU() {`,
			notice: "a GPU in MIG mode is allocated as a whole, and every pod on it fails",
			run:    taints,
		},
		{
			file:   "pkg/catalog/mig.go",
			old:    `c.MIG.GPUs == 0 || len(offered) < c.MIG.GPUs`,
			new:    `c.MIG.GPUs == 0 || len(offered) <= c.MIG.GPUs`,
			notice: "one GPU more than the administrator allows is partitioned",
			run:    parts,
		},
		{
			file:   "pkg/catalog/mig.go",
			old:    `if p.UUID == "" || devices[p.GPUInstanceID] > 1 || i < 0 {`,
			new:    `if p.UUID == "" || i < 0 {`,
			notice: "two compute instances of one MIG instance are published under one name",
			run:    parts,
		},
		{
			file:   "pkg/gpu/use/partitioning.go",
			tests:  "pkg/catalog",
			old:    `case g.MIGModeNeedsReset() && !g.MIG.Enabled && !allowReset:`,
			new:    `case g.MIGModeNeedsReset() && !g.MIG.Enabled && allowReset:`,
			notice: "MIG devices of an A100 are offered without permission to reset it, and their claims fail",
			run:    parts,
		},
		{
			file:   "pkg/catalog/pages.go",
			old:    `slices.Chunk(counters, resourceapi.ResourceSliceMaxCounterSets)`,
			new:    `slices.Chunk(counters, 2*resourceapi.ResourceSliceMaxCounterSets)`,
			notice: "the API server refuses the counters of a node with more than eight GPUs",
			run:    "^TestNodesOfEachSize",
		},
		{
			file:   "pkg/catalog/pages.go",
			old:    `if size+g.size() > devicesPerSlice {`,
			new:    `if size+g.size() > devicesPerSlice+1 {`,
			notice: "the API server refuses the node's slices",
			run:    "^TestDevicesFill|^TestSlices|^TestManyGPUs",
		},
		{
			file:   "pkg/catalog/nodedevice.go",
			old:    `(c.Offer.Has(k) || taken)`,
			new:    `(c.Offer.Has(k) || taken && !taken)`,
			notice: "the monitoring device vanishes under an agent that holds it",
			run:    "Monitor",
		},
		{
			file:   "pkg/catalog/offer.go",
			old:    `if *set {`,
			new:    `if false {`,
			notice: "a typo in the offer is accepted",
			run:    "^TestParse",
		},
		{
			file:   "pkg/controller/controller.go",
			old:    `return view.ScanErr == nil || errors.Is(view.ScanErr, gpu.ErrNotReady)`,
			new:    `return true`,
			notice: "an agent that starts while a GPU hangs removes the devices that the previous agent published",
		},
		{
			file:   "pkg/controller/controller.go",
			old:    `return !equality.Semantic.DeepEqual(*c.published, resources)`,
			new:    `return true || !equality.Semantic.DeepEqual(*c.published, resources)`,
			notice: "every scan of every node writes to the API server",
		},
		{
			file:   "pkg/inventory/inventory.go",
			old:    `maps.Copy(both, b)`,
			new:    `_ = b`,
			tests:  "pkg/controller",
			notice: "a MIG device that a claim creates during a scan counts as an administrator's",
		},
		{
			file:   "pkg/inventory/inventory.go",
			old:    `maps.Copy(both, a)`,
			new:    `_ = a`,
			tests:  "pkg/controller",
			notice: "a MIG device whose claim ends during a scan counts as an administrator's",
		},
		{
			file:   "pkg/inventory/holders.go",
			old:    `return h.lastHeld`,
			new:    `return held`,
			tests:  "pkg/controller",
			notice: "devices that claims hold vanish from the slices when the disk fails",
		},
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `if !c.labels.known || !c.named.known || !c.layouts.known {`,
			new:    `if !c.labels.known {`,
			notice: "an agent that starts withdraws the devices of its configuration for a moment",
		},
		{
			file:   "pkg/claim/internal/plan/request.go",
			old:    `shares.Smallest = 0`,
			new:    `shares.Smallest = f.Shares.Smallest`,
			tests:  "pkg/agent",
			notice: "a share that is allocated is refused because the smallest share was raised meanwhile",
			run:    "^TestASmallShare",
		},
		{
			file: "pkg/cluster/nodeconfig.go",
			old: `if err == nil {
		c.now = config
	}`,
			new:    `c.now = config`,
			tests:  "pkg/controller",
			notice: "a typo in the node's label removes the offer",
		},
		{
			file:   "pkg/cluster/node.go",
			old:    `if strings.HasPrefix(string(name), pluginResources) && !quantity.IsZero() {`,
			new:    `if strings.HasPrefix(string(name), pluginResources) && quantity.Sign() >= 0 {`,
			notice: "the kubelet is polled forever after a device plugin was removed",
		},
		{
			file:   "pkg/inventory/external.go",
			old:    `if i.external.answered > number {`,
			new:    `if i.external.answered >= number {`,
			tests:  "pkg/controller",
			notice: "a claim is prepared with external allocations that are older than the claim",
		},
		{
			file:   "pkg/inventory/knowledge.go",
			old:    `s.gpu.Links = nil`,
			new:    `_ = s`,
			tests:  "pkg/controller",
			notice: "pods that request linked GPUs get a GPU whose peer is lost",
		},
		{
			file:   "pkg/cluster/features.go",
			old:    `	f.dropped[gate] = true`,
			new:    `	f.dropped = map[string]bool{gate: true}`,
			tests:  "pkg/controller",
			notice: "a cluster without two features refuses the slices alternately",
		},
		{
			file:   "pkg/cluster/features.go",
			old:    `f.tooOld = err != nil || parsed.LessThan(version.MustParseGeneric(CountersHold))`,
			new:    `f.tooOld = err == nil && parsed.LessThan(version.MustParseGeneric(CountersHold))`,
			tests:  "pkg/controller",
			notice: "counters are published to a server without a version, and a GPU is assigned twice",
		},
		{
			file:   "pkg/gpu/kind/timeslice.go",
			old:    `policy(number(0), number(0), a.Step)`,
			new:    `policy(a.Memory, number(0), a.Step)`,
			tests:  "pkg/catalog",
			notice: "a time slice without an amount takes all memory, so that no other fits",
		},
		{
			file:   "pkg/gpu/kind/monitor.go",
			old:    `return Capacities{v1alpha1.CapacityMemory: resourceapi.DeviceCapacity{Value: number(0)}}`,
			new:    `return Capacities{v1alpha1.CapacityMemory + "2": resourceapi.DeviceCapacity{Value: number(0)}}`,
			tests:  "pkg/catalog",
			notice: "a selector on memory fails a pod when the scheduler tries the monitor device",
		},
		{
			file:   "pkg/catalog/seat.go",
			old:    `	case seat.Cmp(smallest) < 0:`,
			new:    `	case seat.Cmp(smallest) < -1:`,
			notice: "every seat of a small GPU is allocated and then refused",
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

// publishMutants are of what decides what the scheduler sees: catalog and
// controller.
func publishMutants() []mutant {
	const (
		counters = "^TestCountersAdmit|^TestTheScheduler|^TestTimeSlices|^TestManyGPUs"
		shares   = "^TestWhatAnAllocation|^TestHowShares|^TestMemory|^TestMIGDevicesAre|^TestWithout|^TestAnExclusive"
		taints   = "^TestAnUnhealthy|^TestAGPUInMIG|^TestATaint|^TestExternalAllocations|^TestComputeModes|^TestAnExclusive|^TestAWithdrawnDevice|^TestASharedGPU"
		parts    = "^TestOffered|^TestWhyMIG|^TestStaticMIG|^TestParse|^TestAMIGDevice|^TestAGPUThatIsCut"
	)
	return []mutant{
		{
			file:   "pkg/catalog/counters.go",
			old:    `return slices.ContainsFunc(limits, func(r rule) bool { return r.of(p.profile) > r.total })`,
			new:    `return false`,
			notice: "a MIG device is published that the hardware cannot make any more",
			run:    counters + "|" + parts,
		},
		{
			file:   "pkg/catalog/counters.go",
			old:    `limits[i].total -= limits[i].takenBy(g.MIG.Profiles, foreign)`,
			new:    `limits[i].total -= 0 * limits[i].takenBy(g.MIG.Profiles, foreign)`,
			notice: "the scheduler hands out media engines that an administrator's MIG device has",
			run:    counters + "|" + parts,
		},
		{
			file:   "pkg/catalog/counters.go",
			old:    `needed := heaviest(candidates, c.takes) > c.total`,
			new:    `needed := heaviest(candidates, c.takes) > c.total+1`,
			notice: "the scheduler hands out one MIG device more than the hardware has engines for",
			run:    counters + "|" + parts,
		},
		{
			file:   "pkg/catalog/counters.go",
			old:    `return slices.ContainsFunc(foreign, func(f gpu.Partition) bool { return p.placement.Overlaps(f.Placement) })`,
			new:    `return false`,
			notice: "a MIG device is published where an administrator's is",
			run:    counters + "|" + parts,
		},
		{
			file:   "pkg/catalog/capacity.go",
			old:    `int64(usable/MemoryStep*MemoryStep)`,
			new:    `int64(usable)`,
			notice: "the last share of a GPU is refused: it is no multiple of the step",
			run:    shares,
		},
		{
			file:   "pkg/catalog/capacity.go",
			old:    `less(g.MemoryBytes, g.ReservedBytes)`,
			new:    `less(g.MemoryBytes, 0)`,
			notice: "shares add up to memory that the driver keeps",
			run:    shares,
		},
		{
			file:   "pkg/catalog/capacity.go",
			old:    `if shared && o.byMPS(g) {`,
			new:    `if shared {`,
			notice: "memory is kept for an MPS server where there is none",
			run:    shares,
		},
		{
			file:   "pkg/catalog/share.go",
			old:    `o.Smallest = max(o.Smallest, (all.Value()+gpu.MPSMaxClients-1)/gpu.MPSMaxClients)`,
			new:    `_ = gpu.MPSMaxClients`,
			notice: "the scheduler gives away more shares than MPS admits processes",
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
			file:   "pkg/catalog/share.go",
			old:    `compute.RequestPolicy.ValidRange.Max = &most`,
			new:    `_ = most`,
			notice: "one claim gets more than 100 percent of the compute of a GPU",
			run:    shares,
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
			notice: "one GPU more than the administrator allows is cut into MIG devices",
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
			file:   "pkg/catalog/mig.go",
			old:    `case g.MIGModeNeedsReset() && !g.MIG.Enabled && !o.AllowReset:`,
			new:    `case g.MIGModeNeedsReset() && !g.MIG.Enabled && o.AllowReset:`,
			notice: "an A100 is offered in parts without the right to reset it, and its claims fail",
			run:    parts,
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
			notice: "an agent that starts on a hanging GPU takes back what the one before has published",
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
			notice: "a MIG device that a claim makes during a scan counts as an administrator's",
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
			file: "pkg/cluster/offer.go",
			old: `o.now, o.err = offer, nil
	} else {`,
			new: `o.now, o.err = offer, nil
	} else if o.now = offer; true {`,
			tests:  "pkg/controller",
			notice: "a typo in the node's label takes the offer away",
		},
		{
			file:   "pkg/cluster/node.go",
			old:    `if strings.HasPrefix(string(name), pluginResources) && !quantity.IsZero() {`,
			new:    `if strings.HasPrefix(string(name), pluginResources) && quantity.Sign() >= 0 {`,
			notice: "the kubelet is polled for ever after a device plugin has gone",
		},
		{
			file:   "pkg/inventory/external.go",
			old:    `if i.external.answered > number {`,
			new:    `if i.external.answered >= number {`,
			tests:  "pkg/controller",
			notice: "a claim is prepared on an answer about device plugins that is older than the claim",
		},
		{
			file:   "pkg/inventory/knowledge.go",
			old:    `s.gpu.Links = nil`,
			new:    `_ = s`,
			tests:  "pkg/controller",
			notice: "pods that want linked GPUs get one whose peer is lost",
		},
		{
			file:   "pkg/cluster/features.go",
			old:    `	f.dropped[gate] = true`,
			new:    `	f.dropped = map[string]bool{gate: true}`,
			tests:  "pkg/controller",
			notice: "a cluster that drops two features has its slices refused in turns",
		},
		{
			file:   "pkg/cluster/features.go",
			old:    `f.tooOld = err != nil || parsed.LessThan(version.MustParseGeneric(CountersHold))`,
			new:    `f.tooOld = err == nil && parsed.LessThan(version.MustParseGeneric(CountersHold))`,
			tests:  "pkg/controller",
			notice: "a server that tells no version is trusted with counters, and a GPU is promised twice",
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

// limitMutants returns the mutants of the memory limits of containers.
func limitMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/limits/limits.go",
			old:    `if others >= most {`,
			new:    `if others > most {`,
			notice: "a claim takes more memory than its share by one more pod",
		},
		{
			file:   "pkg/limits/limits.go",
			old:    `bytes += l.Bytes`,
			new:    `bytes = l.Bytes`,
			notice: "a container with two shares of a GPU gets the memory of one",
		},
		{
			file:   "pkg/limits/limits.go",
			old:    `if l.GPU == of.GPU {`,
			new:    `if l.GPU != "" {`,
			notice: "a container gets its memory of one GPU on another one as well",
		},
		{
			file:   "pkg/memoryhook/hook.go",
			old:    `if id == cgroup.RootID {`,
			new:    `if id == 0 {`,
			notice: "a container without a cgroup of its own limits the whole node",
		},
		{
			file:   "pkg/memoryhook/hook.go",
			old:    `errors.Join(err, h.Limits.Leave(h.Device, l))`,
			new:    `errors.Join(err)`,
			notice: "a container that could not be limited counts against the next one",
		},
		{
			file:   "pkg/nvml/memorylimit.go",
			old:    `if l.ownCgroup == "" {`,
			new:    `if true {`,
			notice: "the agent publishes its own memory limit as the size of a GPU",
			run:    "^TestAMemoryLimitOfTheOwnCgroup",
		},
		{
			file:   "pkg/nvml/memorylimit.go",
			old:    `device.SetMemoryLimits_v1(folder, 0, bytes)`,
			new:    `device.SetMemoryLimits_v1(folder, bytes, bytes)`,
			notice: "the memory of a container that has ended is missing for the next container of its pod",
			run:    "MemoryLimit",
		},
		{
			file:   "pkg/claim/internal/step/limitmemory.go",
			old:    `_, err = s.close(func(o journal.Injected) bool { return o.Claim == w.Claim.UID })`,
			new:    ``,
			notice: "containers start with a claim that is not prepared any more",
			run:    "^TestTheDriverLimits|^TestDyingAtEveryPointOfALimitedShare",
			tests:  "pkg/claim",
		},
		{
			file:   "pkg/agent/usage.go",
			old:    `if !c.IsUsed() {`,
			new:    `if c.ID == 0 {`,
			notice: "the metrics show the memory of a container that has ended",
			run:    "^TestTheMemoryOfEachLimitedContainer",
		},
	}
}

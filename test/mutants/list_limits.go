// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// limitMutants returns the mutants of the memory limits of containers.
func limitMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/claim/unlimited.go",
			old:    `if len(claims) == 0 || !c.lives(u) {`,
			new:    `if len(claims) == 0 {`,
			notice: "a container that has just ended is called one without its limit",
			run:    "^TestAContainerThatEnds",
		},
		{
			file:   "pkg/claim/unlimited.go",
			old:    `if err := errors.Join(err, l.err, onErr); err != nil {`,
			new:    `if err := errors.Join(err, onErr); err != nil {`,
			notice: "a GPU that hangs shows that all containers have their limit",
			run:    "^TestContainersWithout",
		},
		{
			file:   "pkg/plugin/unlimited.go",
			old:    `if checks[i].Err == nil {`,
			new:    `if true {`,
			notice: "limits that cannot be checked look held",
			run:    "^TestContainersWithout",
		},
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
			file:   "pkg/limits/limits.go",
			old:    `unix.Flock(int(dir.Fd()), unix.LOCK_EX)`,
			new:    `unix.Flock(int(dir.Fd()), unix.LOCK_SH)`,
			notice: "containers that start together take more memory than their share",
			run:    "^TestNoOtherProcess",
		},
		{
			file:   "pkg/claim/internal/step/mpsdaemon.go",
			old:    `MemoryLimit: d.ProcessMemory()}`,
			new:    `MemoryLimit: d.MPS.MemoryLimit}`,
			notice: "nothing limits a share if the driver counts MPS clients as their server's memory",
			tests:  "pkg/claim", run: "Holds|Namespace",
		},
		{
			file:   "pkg/claim/internal/step/mpsdaemon.go",
			old:    `if d.MPS.Namespace != "" || slices.ContainsFunc(clients`,
			new:    `if slices.ContainsFunc(clients`,
			notice: "a process that hides one of its GPUs has no memory limit of MPS at all",
			tests:  "pkg/claim", run: "Holds|Namespace",
		},
		{
			file:   "pkg/nvml/partition.go",
			old:    `if present && info.SliceCount == slices {`,
			new:    `if present && info.SliceCount == slices && (slices != 7 || number == nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE_NVL) {`,
			notice: "a MIG device of all seven slices of an A100 cannot be made",
			run:    "ComputeProfile",
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
			old:    `_, err = s.close(func(o plan.Injected) bool { return o.Claim == w.Claim.UID })`,
			new:    ``,
			notice: "containers start with a claim that is not prepared any more",
			run:    "^TestTheDriverLimits|^TestDyingAtEveryPointOfALimitedShare",
			tests:  "pkg/claim",
		},
		{
			file:   "pkg/memoryhook/command.go",
			old:    `ctx, cancel := context.WithTimeout(ctx, o.hook.Timeout)`,
			new:    `ctx, cancel := context.WithCancel(ctx)`,
			notice: "a process that hangs in the driver never gives up",
			run:    "^TestTheChildSets",
		},
		{
			file:   "pkg/procfs/procfs.go",
			old:    `return strings.Join(segments[:i+2], "/")`,
			new:    `return path`,
			notice: "the limit is set on a cgroup below the container's",
			run:    "ChildOfItsPods",
		},
		{
			file:   "pkg/memoryhook/calllock.go",
			old:    `late > 0`,
			new:    `late < 0`,
			notice: "each container for a GPU that hangs waits for half a minute",
			run:    "FailAtOnce",
			hangs:  20 * time.Second,
		},
		{
			file:   "pkg/memoryhook/calllock.go",
			old:    `errors.Join(l.Truncate(0), l.Close())`,
			new:    `l.Close()`,
			notice: "a call that has just begun looks like one that hangs",
			run:    "FailAtOnce|OneProcess",
		},
		{
			file:   "pkg/home/memoryhook.go",
			old:    `keepNewest(parent, earlierVersions)`,
			new:    `keepNewest(parent, 0)`,
			notice: "an update of the agent removes the hook that CDI specs name",
			run:    "ReplacedTogether",
		},
		{
			file:   "pkg/agent/memorylimits.go",
			old:    `trial.SysProcAttr = &syscall.SysProcAttr{Chroot: root}`,
			new:    `trial.SysProcAttr = nil`,
			notice: "the agent tries the hook in its own file system, not the host's",
			run:    "HostMustBeAble",
		},
		{
			file:   "pkg/mps/supervisor/labels.go",
			old:    `options += ",context=" + containerLabel`,
			new:    ``,
			notice: "with SELinux, no container reaches its MPS daemon",
			run:    "SELinux",
		},
		{
			file:   "pkg/mps/supervisor/labels.go",
			old:    `err == nil && label != containerLabel`,
			new:    `err == nil && label == containerLabel`,
			notice: "with SELinux, no container reaches an MPS daemon in a plain folder",
			run:    "SELinux",
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

// SPDX-License-Identifier: Apache-2.0

package main

// occupancyMutants returns the mutants of finding the processes that use a device.
func occupancyMutants() []mutant {
	const (
		handedOut = "^TestADeviceIsNotHandedOut|^TestAMIGDeviceOfAnAdministrator|^TestAProcessUses"
		undone    = "^TestAClaimIsNotUndone|^TestDevicesThatAClaimLoses|^TestAProcessUses|^TestPodsThatAClaim"
		released  = "^TestAClaimIsReleased|^TestAClaimPreparedAfter"
	)
	return []mutant{
		{
			file:   "pkg/claim/run.go",
			old:    `err := m.checkUnused(ctx, j); err != nil {`,
			new:    `err := error(nil); err != nil {`,
			notice: "after a forced deletion one GPU is given to two tenants",
			run:    handedOut,
		},
		{
			file:   "pkg/claim/phase.go",
			old:    `err := m.checkEnded(ctx, work(r)); err != nil {`,
			new:    `err := error(nil); err != nil {`,
			notice: "a GPU is freed while processes of its claim compute",
			run:    undone,
		},
		{
			file:   "pkg/claim/phase.go",
			old:    `r.AddPods(want.Pods)`,
			new:    `false`,
			notice: "a share is undone while a pod uses it that started after a restart of the kubelet",
			run:    undone,
		},
		{
			file:   "pkg/claim/occupancy.go",
			old:    `	if check {`,
			new:    `	if false {`,
			notice: "a pod is started on a GPU that is lost",
			run:    "^TestAGPUThatDoesNotAnswer",
		},
		{
			file:   "pkg/claim/occupancy.go",
			old:    `err == nil && p.Graphics && task.PodUID == ""`,
			new:    `err == nil && p.Graphics`,
			notice: "a GPU is assigned while a stranger's container renders on it",
			run:    handedOut,
		},
		{
			file:   "pkg/claim/occupancy.go",
			old:    `|| task.IsMPS() ||`,
			new:    `||`,
			notice: "no second share is prepared on a GPU, because of its MPS server",
			run:    handedOut,
		},
		{
			file:   "pkg/claim/occupancy.go",
			old:    `return u.GPUInstance == nil || !slices`,
			new:    `return u.GPUInstance == nil || slices`,
			notice: "a MIG device is refused because of a process on another MIG device of the GPU",
			run:    handedOut,
		},
		{
			file:   "pkg/claim/occupancy.go",
			old:    `				unanswered = errors.Join(unanswered, j.asked[h.Claim.UID].err)`,
			new:    `				_ = h`,
			notice: "an event calls a tenant's pod a stranger while the API server is away",
			run:    handedOut,
		},
		{
			file:   "pkg/claim/occupancy.go",
			old:    `if d.IsShared(names[i]) && !slices.Contains(j.Pods`,
			new:    `if !slices.Contains(j.Pods`,
			notice: "a GPU is freed while a pod computes that came after the claim was prepared",
			run:    undone,
		},
		{
			file:   "pkg/claim/occupancy.go",
			old:    `bool { return u.PodUID == "" })`,
			new:    `bool { return false })`,
			notice: "a program of the host keeps a pod Terminating",
			run:    undone,
		},
		{
			file:   "pkg/gpu/use/use.go",
			old:    `if g.Fault != "" || f.Unhealthy != "" {`,
			new:    `if f.Unhealthy != "" {`,
			notice: "a pod is started on a GPU that waits for a reset",
			run:    "^TestAGPUWithAFault",
			tests:  "pkg/claim",
		},
		{
			file:   "pkg/claim/recover.go",
			old:    `recoverAtOnce = 128`,
			new:    `recoverAtOnce = 1`,
			notice: "a GPU that hangs blocks the recovery of claims on other GPUs",
			run:    "^TestClaimsAreRecovered",
		},
		{
			file:   "pkg/claim/prepare.go",
			old:    `limit = min(limit, left-min(undoPatience+answerTime, left/3))`,
			new:    `limit = min(limit, left)`,
			notice: "the pod's event is DeadlineExceeded instead of the cause",
			run:    "^TestACallEnds",
		},
		{
			file:   "pkg/claim/internal/journal/journal.go",
			old:    `return now == stamp, err`,
			new:    `return now == stamp || err == nil, err`,
			notice: "reconciliation undoes a claim that was prepared while it read the API",
			run:    released,
			tests:  "pkg/claim",
		},
		{
			file:   "pkg/claim/release.go",
			old:    `result.Driver != m.DriverName || result.Pool != m.PoolName {`,
			new:    `result.Driver != m.DriverName {`,
			notice: "a claim that went to another node keeps a device of the same name here",
			run:    released,
		},
		{
			file:   "pkg/procfs/procfs.go",
			old:    `task.OnHost = len(strings.Fields(value)) == 1`,
			new:    `task.OnHost = len(strings.Fields(value)) >= 1`,
			notice: "a container's process that calls itself an MPS server is overlooked",
		},
		{
			file:   "pkg/procfs/procfs.go",
			old:    `if !found || !isUID(uid) {`,
			new:    `if !found {`,
			notice: "a service of the host whose name begins with pod keeps a pod Terminating",
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

// nodeMutants returns the mutants of the packages that act on the node: NVML, the MPS
// supervisor, the kubelet plugin, and the wiring of the agent.
func nodeMutants() []mutant {
	const (
		partitions = "^TestEveryPartition|^TestAFailedCompute|^TestPartitions|^TestAnOperation|^TestMIG|^TestOnlyThePartition|^TestAPartition"
		events     = "^TestWatch"
		calls      = "^TestACall|^TestACancelled|^TestAGPUThatHangs|^TestADriverThatHangs|^TestSnapshot|^TestOneGPU|^TestADriver"
		daemons    = "^TestADaemon|^TestDaemons|^TestHigher|^TestTheSame|^TestACeiling|^TestAnAnswer|^TestServers"
		processes  = "^TestAContainer|^TestAnotherUser|^TestAShell|^TestADaemonOf|^TestAProcess"
		shm        = "^TestAShm|^TestADaemonHasAShm|^TestAPlainShm|^TestADaemonKeepsNo|^TestADaemonWrites"
	)
	return []mutant{
		{
			file:   "pkg/sysfs/locality.go",
			old:    `if len(path) < rootAndPort+1+portAndDevice {`,
			new:    `if len(path) < rootAndPort+portAndDevice {`,
			notice: "GPUs behind a bridge seem to be on a PCIe switch",
			run:    "^TestPCIeSwitches",
		},
		{
			file:   "pkg/agent/viewers.go",
			old:    `!status.Authenticated || status.User.Username != v.user || !slices.Contains(status.Audiences, v.audience)`,
			new:    `!status.Authenticated || !slices.Contains(status.Audiences, v.audience)`,
			notice: "every account whose token has the audience reads the facts about a node",
		},
		{
			file:   "pkg/agent/viewers.go",
			old:    `|| !slices.Contains(status.Audiences, v.audience) {`,
			new:    `|| slices.Contains(status.Audiences, "") {`,
			notice: "an agent accepts a token that an authenticator without audiences has reviewed",
			run:    "^TestATokenThatIsReviewed",
		},
		{
			file:   "pkg/agent/viewers.go",
			old:    `v.accepted.Add(hash, struct{}{}, acceptedFor)`,
			new:    `v.accepted.Add(hash, struct{}{}, 60*acceptedFor)`,
			notice: "a token that has expired opens the agent for another hour",
			run:    "^TestATokenIsReviewedAgain",
		},
		{
			file:   "pkg/agent/viewers.go",
			old:    `if !v.limiter(address).Allow() || !v.all.Allow() {`,
			new:    `if !v.all.Allow() {`,
			notice: "one pod that sends made-up tokens keeps viewers out",
		},
		{
			file:   "pkg/agent/viewers.go",
			old:    `if !v.limiter(address).Allow() || !v.all.Allow() {`,
			new:    `if !v.limiter(address).Allow() {`,
			notice: "many pods that send made-up tokens let agents flood the API server",
		},
		{
			file:   "pkg/nvml/migmode.go",
			old:    `return false, errors.Join(err, revert(device, current))`,
			new:    `return false, err`,
			notice: "a MIG mode that could not be switched stays pending, and takes effect at the next boot",
			run:    partitions,
		},
		{
			file: "pkg/nvml/migmode.go",
			old: `case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", gpu.ErrTimeout, context.Cause(ctx))`,
			new:    `case false:`,
			notice: "a MIG mode stays pending without a reset, and takes effect at the next boot",
			run:    "CallerHasGivenUp",
		},
		{
			file:   "pkg/nvml/migmode.go",
			old:    `case !mayReset:`,
			new:    `case false:`,
			notice: "a GPU is reset although the administrator has not allowed it",
			run:    partitions,
		},
		{
			file:   "pkg/nvml/partition.go",
			old:    `undo = func() error { return destroyInstance(instance) }`,
			new:    `_ = instance`,
			notice: "half a MIG device stays and occupies its placement",
			run:    partitions,
		},
		{
			file:   "pkg/nvml/partition.go",
			old:    `if is.Placement == p.placement {`,
			new:    `if is.Placement.Size == p.placement.Size {`,
			notice: "another claim's MIG device is destroyed",
			run:    partitions,
		},
		{
			file:   "pkg/nvml/partition.go",
			old:    `if present && info.SliceCount == slices {`,
			new:    `if present {`,
			notice: "a MIG device has less compute than it was published with",
			run:    partitions,
		},
		{
			file:   "pkg/nvml/call.go",
			old:    `if errors.Is(ctx.Err(), context.DeadlineExceeded) {`,
			new:    `if errors.Is(ctx.Err(), context.Canceled) {`,
			notice: "every caller waits again for a GPU that is known to hang",
			run:    calls,
		},
		{
			file:   "pkg/nvml/snapshot.go",
			old:    `		err = l.stop()`,
			new:    `		err = nil`,
			notice: "a GPU that is added later is never found",
			run:    calls + "|^TestANode|^TestARelease|^TestALibrary",
		},
		{
			file:   "pkg/nvml/events.go",
			old:    `nvml.EventTypeDoubleBitEccError:     gpu.EventECC,`,
			new:    `nvml.EventTypeDoubleBitEccError:     gpu.EventXID,`,
			notice: "a GPU with broken memory is assigned",
			run:    events,
		},
		{
			file:   "pkg/nvml/events.go",
			old:    `79: gpu.EventLost, // GPU has fallen off the bus`,
			new:    ``,
			notice: "a second fault hides that the GPU has fallen off the bus",
			run:    events,
		},
		{
			file:   "pkg/mps/supervisor/ceilings.go",
			old:    `either.MemoryLimits[i] = max(either.MemoryLimits[i], limit)`,
			new:    `either.MemoryLimits[i] = limit`,
			notice: "a ceiling that a daemon may still have is not removed when the supervisor restarts",
			run:    daemons,
		},
		{
			file:   "pkg/mps/supervisor/ceilings.go",
			old:    "		case limit(before, i) > 0:\n			all = append(all, setting{i, unlimited})\n",
			new:    "",
			notice: "a claim without a limit gets the limit of the claim before it",
			run:    daemons,
		},
		{
			file:   "pkg/mps/supervisor/ceilings.go",
			old:    `err != nil || got != float64(s.value) {`,
			new:    `err != nil && got != float64(s.value) {`,
			notice: "a daemon that ignores its thread percentage is trusted",
			run:    daemons,
		},
		{
			file:   "pkg/mps/supervisor/ceilings.go",
			old:    `slices.IndexFunc(lines, refusal.MatchString); i >= 0 {`,
			new:    `slices.IndexFunc(lines, refusal.MatchString); i >= len(lines) {`,
			notice: "a share is Ready although the daemon refused its limits",
			run:    daemons,
		},
		{
			file:   "pkg/mps/supervisor/find.go",
			old:    `own := strconv.Itoa(os.Geteuid())`,
			new:    `own := strconv.Itoa(os.Geteuid()); return true`,
			notice: "a tenant's process is mistaken for an MPS daemon",
			run:    processes,
		},
		{
			file:   "pkg/mps/supervisor/find.go",
			old:    `return sameProcesses(pid) && hasVariable(pid, logVariable+logDir) && runsMPS(pid)`,
			new:    `return hasVariable(pid, logVariable+logDir) && runsMPS(pid)`,
			notice: "a container's process is mistaken for an MPS daemon, and is killed or adopted",
			run:    processes,
		},
		{
			file:   "pkg/mps/supervisor/find.go",
			old:    `return sameProcesses(pid) && hasVariable(pid, logVariable+logDir) && runsMPS(pid)`,
			new:    `return sameProcesses(pid) && hasVariable(pid, logVariable+logDir)`,
			notice: "a shell of the administrator is killed with the daemon",
			run:    processes,
		},
		{
			file:   "pkg/mps/supervisor/empty.go",
			old:    `unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC`,
			new:    `unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC`,
			notice: "a link in a directory that tenants can write removes files of the node",
			run:    "Empt",
		},
		{
			file:   "pkg/mps/supervisor/filesystems.go",
			old:    `pipeFlags = shmFlags | unix.MS_NOSYMFOLLOW`,
			new:    `pipeFlags = shmFlags`,
			notice: "a tenant's link in the pipe directory makes the daemon write a file of the node",
			run:    shm,
		},
		{
			file:   "pkg/mps/supervisor/keep.go",
			old:    `min(firstBackoff<<min(attempt-1, 16), lastBackoff)`,
			new:    `firstBackoff`,
			notice: "a daemon that cannot run is started every second forever",
			run:    daemons,
		},
		{
			file:   "pkg/mps/supervisor/namespaces.go",
			old:    `return path == f.namespace(n.Name) })`,
			new:    `return path == f.namespace("") && n.Name == "" })`,
			notice: "containers lose the folder of their namespace when their daemon is restarted, and compute without MPS",
			run:    "^TestADaemonThatDiesComesBack|^TestClientsOfANamespace",
		},
		{
			file:   "pkg/mps/supervisor/namespaces.go",
			old:    `	limits(defaultThreads, defaultMemory)`,
			new:    `	limits(100, 0)`,
			notice: "a client of the default namespace has the whole GPU",
			run:    "^TestClientsOfANamespace|^TestNamespacesCome",
		},
		{
			file:   "pkg/mps/supervisor/supervisor.go",
			old:    `if s.leaving {`,
			new:    `if false {`,
			notice: "a daemon that is started while the supervisor ends loses its directory",
			run:    "^TestACallThatComes|^TestTheNext|^TestASupervisor",
		},
		{
			file:   "pkg/mps/supervisor/supervisor.go",
			old:    `	if !alone {`,
			new:    `	if !alone && len(s.daemons) > 0 {`,
			notice: "two supervisors start and stop the same daemons",
			run:    "^TestOneSupervisor|^TestADaemonIs",
		},
		{
			file:   "pkg/mps/supervisor/validate.go",
			old:    `if !deviceUUID.MatchString(uuid) {`,
			new:    `if false {`,
			notice: "an invalid device reaches the environment of a program that runs as root",
			run:    "^TestADaemonIsRefused|^TestADaemonWithout",
		},
		{
			file:   "pkg/plugin/prepare.go",
			old:    `ShareID:      d.ShareID,`,
			new:    ``,
			notice: "the kubelet mixes up two shares of one GPU",
		},
		{
			file:   "pkg/plugin/leftovers.go",
			old:    `return errors.Is(err, unix.ECONNREFUSED)`,
			new:    `return err == nil || errors.Is(err, unix.ECONNREFUSED)`,
			notice: "a starting agent removes the sockets of the other agent in a rolling update",
		},
		{
			file:   "pkg/plugin/leftovers.go",
			old:    `if err != nil || info.Mode().Type() != os.ModeSocket {`,
			new:    `if err != nil || info == nil {`,
			notice: "a file that only has the name of a socket is removed",
		},
		{
			file:   "pkg/plugin/publish.go",
			old:    `if len(existing.Items) > 0 {`,
			new:    `if len(existing.Items) > 1000 {`,
			notice: "a restarted agent publishes every GPU a second time",
		},
		{
			file:   "pkg/plugin/publish.go",
			old:    `if err := p.registration.wait(ctx); err != nil {`,
			new:    `if err := error(nil); err != nil {`,
			notice: "pods are scheduled to a node that cannot prepare them yet, and wait for 80 seconds",
		},
		{
			file:   "pkg/plugin/errors.go",
			old:    `if !errors.Is(err, kubeletplugin.ErrRecoverable) {`,
			new:    `if err == kubeletplugin.ErrRecoverable {`,
			notice: "an agent whose server has failed keeps running without serving the kubelet",
		},
		{
			file:   "pkg/plugin/health.go",
			old:    `health = kubeletplugin.HealthStatusUnhealthy`,
			new:    `health = kubeletplugin.HealthStatusHealthy`,
			notice: "a pod is not told that its GPU has failed",
		},
		{
			file:   "pkg/plugin/registration.go",
			old:    `case !status.PluginRegistered:`,
			new:    `case false:`,
			notice: "an agent that the kubelet refused counts as ready",
		},
		{
			file:   "pkg/agent/agent.go",
			old:    `if !idle || len(held) > 0 || err != nil {`,
			new:    `if len(held) > 0 || err != nil {`,
			notice: "an agent that ends during a call removes the directory that the call writes to",
			run:    "^TestAnAgentThatEnds|^TestTheLastAgent|^TestAClaimThatIsPrepared",
		},
		{
			file:   "cmd/gpu-kubelet-plugin/sharing.go",
			old:    `if s.supervisor == "" {`,
			new:    `if false {`,
			notice: "a smallest share below a context is refused on nodes without MPS",
			run:    "^TestPlainShares",
		},
		{
			file:   "pkg/catalog/share.go",
			old:    `if factor >= 1 && factor <= maxOvercommit {`,
			new:    `if !(factor < 1 || factor > maxOvercommit) {`,
			notice: "an overcommit of NaN is accepted",
			tests:  "cmd/gpu-kubelet-plugin",
			run:    "^TestInvalidValues",
		},
		{
			file:   "pkg/agent/print.go",
			old:    `if len(node.GPUs) == 0 && len(node.Unreadable) > 0 {`,
			new:    `if false {`,
			notice: "--print-slices succeeds with an empty list if no GPU can be read",
			run:    "Print",
		},
	}
}

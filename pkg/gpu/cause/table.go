// SPDX-License-Identifier: Apache-2.0

package cause

import "github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"

// Parts of remedies that several causes share.
const (
	moveOn = "delete the pod, so that its controller starts it on another GPU; results that are only in the memory of this GPU are lost"
	keep   = "nothing, if the program runs; end the pod when it suits you, so that the GPU can be repaired"
	wait   = "nothing: the program runs on"
	// drain ends the pods of a GPU before a repair.
	drain   = "move its pods (kubectl gpu drain NODE/GPU_NAME), then "
	reset   = drain + "reset the GPU (nvidia-smi --gpu-reset --id ADDRESS) or restart the node"
	restart = drain + "restart the node"

	crashed = "the programs on the GPU have failed or will fail: their CUDA calls return errors"
	hangs   = "programs on the GPU hang or get CUDA errors"
	runsOn  = "programs that have the device run on"

	endsReported = "the driver no longer requests a recovery action, the driver is loaded again, or the node restarts"
	endsReload   = "the driver is loaded again, the node restarts, or an administrator declares the GPU repaired"
	endsAnswer   = "the GPU answers again"
)

// table has the causes in the order of the documents. Of a key, a group (a value that ends
// with "-", or none) comes after its members.
//
// Sources: NVIDIA's XID catalogue
// (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) and its page on recovery
// actions (https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html).
var table = []Cause{
	unhealthy("lost", "the GPU does not answer: it has fallen off the bus, or was removed", crashed, moveOn,
		restart+"; if it does not come back, check its seat, its power and the log of the kernel (dmesg)", endsAnswer),
	unhealthy("timeout", "the driver hangs: calls for this GPU do not return", hangs, moveOn, reset+"; processes that cannot be killed need the restart", endsAnswer),
	unhealthy("driver-not-ready", "the NVIDIA driver is not loaded, or is being loaded", crashed, "wait until the driver is loaded, then delete the pod if its program has failed",
		"load the driver on node NODE: nvidia-smi there prints the reason", endsAnswer),
	unhealthy("permission-denied", "the driver refuses the agent access to the GPU", runsOn, wait,
		"run the agent on node NODE as root and without a device cgroup that excludes the GPU", endsAnswer),
	unhealthy("device-node-missing", "a device node that CUDA programs need does not exist on the node", runsOn, wait,
		"run nvidia-smi and nvidia-modprobe -u -c 0 as root on node NODE, and have that done at boot", "the device node exists; the agent notices within a minute"),
	unhealthy("fabric-not-ready", "the GPU has not joined its NVSwitch fabric", "CUDA fails with error 802, \"system not yet initialized\"", "wait, then delete the pod if its program has failed",
		"start nvidia-fabricmanager on node NODE, of the driver's release, or nvidia-imex on multi-node NVLink", "it has joined; the agent notices within a minute"),
	unhealthy("fabric-failed", "the GPU could not join its NVSwitch fabric", "CUDA fails with error 802, \"system not yet initialized\"", moveOn,
		"read the log of nvidia-fabricmanager on node NODE, start it again, and restart the node if the GPU still does not join", "it has joined; the agent notices within a minute"),
	unhealthy("ecc", "the driver reported a memory error that cannot be corrected", "the program that used the memory was ended; others may have got wrong data", moveOn, reset, endsReported),
	unhealthy("record-damaged", "the GPU had failed, and the agent cannot read the record of the fault", runsOn, keep, reset+"; if it was repaired already: kubectl gpu repaired NODE/GPU_NAME", endsReload),

	unhealthy("recovery-gpu-reset", "the driver requests a reset of the GPU", hangs, moveOn, reset, endsReported),
	unhealthy("recovery-node-reboot", "the driver requests a restart of the node", hangs, moveOn, restart, endsReported),
	unhealthy("recovery-drain-p2p", "the driver requests the end of the programs that use peer-to-peer transfers", "transfers between GPUs fail; other work runs on", moveOn,
		drain+"wait until the driver requests no action", endsReported),
	unhealthy("recovery-drain-and-reset", "the driver requests the end of the programs on the GPU and its peers, and a reset", "work runs on at a lower capacity", keep, reset, endsReported),
	unhealthy("recovery-recover-imex-domain", "the driver requests a recovery of the IMEX domain", "transfers between nodes fail", moveOn, drain+"start nvidia-imex again on all nodes of the domain", endsReported),
	unhealthy("recovery-bus-reset", "the driver requests a reset of the PCIe bus of the GPU", hangs, moveOn, restart, endsReported),
	unhealthy("recovery-system-reboot", "the driver requests a restart of the whole system", hangs, moveOn, restart, endsReported),
	unhealthy("recovery-", "the driver requests a recovery action that this release does not know", hangs, moveOn, "read \"GPU Recovery Action\" of nvidia-smi --query on node NODE, and do it", endsReported),

	xid("46", "the GPU stopped processing", hangs, reset, endsReload),
	xid("48", "a double-bit ECC error in the memory of the GPU", "the program that used the memory was ended", reset+"; if it happens again, test the GPU with NVIDIA's field diagnostics", endsReported),
	xid("54", "the auxiliary power of the GPU is not connected", crashed, "stop the node, connect the power of the GPU, and start the node", endsReload),
	xid("62", "a micro-controller of the GPU has halted", hangs, reset, endsReported),
	xid("64", "a row of the GPU's memory could not be remapped", "programs run on until they use the row", reset+"; if it happens again, replace the GPU", endsReported),
	xid("74", "an NVLink error", "transfers between GPUs fail or hang, such as those of NCCL", reset+"; nvidia-smi nvlink --errorcounters names the link, and a link that fails again needs its bridge or tray checked", endsReported),
	xid("79", "the GPU has fallen off the bus", crashed, restart+"; if it happens again, check power, heat and the seat of the GPU", "the GPU was lost and answers again, or the node restarts"),
	xid("95", "a memory error that could not be contained", "all programs on the GPU have failed or have wrong data", reset, endsReported),
	xid("110", "a security fault", crashed, reset, endsReported),
	xid("119", "the GPU's system processor (GSP) does not answer", hangs, reset, endsReload),
	xid("120", "an error of the GPU's system processor (GSP)", hangs, reset, endsReported),
	xid("136", "the training of an NVLink failed", "transfers between GPUs fail or are slow", reset, endsReported),
	xid("140", "a memory error from which the GPU did not recover", crashed, reset, endsReload),
	xid("143", "the GPU could not be initialised", crashed, reset, endsReported),
	xid("144", nvlink5, nvlinkHangs, reset, endsReported),
	xid("145", nvlink5, nvlinkHangs, reset, endsReported),
	xid("146", nvlink5, nvlinkHangs, reset, endsReported),
	xid("149", nvlink5, nvlinkHangs, reset, endsReported),
	xid("150", nvlink5, nvlinkHangs, reset, endsReported),
	xid("151", "the keys of confidential computing could not be changed", crashed, restart, endsReload),
	xid("156", "memory of the GPU must be retired", "programs run on until they use that memory", reset, endsReported),
	xid("158", "a fatal timeout of the GPU", hangs, reset, endsReported),
	xid("167", "a fatal timeout of the GPU's PCIe transfers", hangs, restart, endsReload),
	xid("169", "the security micro-controller of the GPU has halted", hangs, reset, endsReload),
	xid("", "the driver reported an XID after which NVIDIA recommends a reset or a restart", hangs, reset, endsReload),

	unhealthy("", "the GPU has a fault that this release does not know", hangs, moveOn, "read the log of the agent of node NODE, which describes the fault", endsReload),

	{
		Key: v1alpha1.TaintInUse, Value: v1alpha1.InUseTaintForeignProcess, Code: "foreign-process",
		Meaning: "a process without a claim for the device computes on it",
		Effect:  "programs share the GPU with a process that no limit holds: they may be slow or run out of memory",
		User:    "nothing, if the program runs; the administrator ends the process",
		Admin:   "end the process: the log of the agent of node NODE names its pod or command",
		Ends:    "the process has ended",
	},
	{
		Key: v1alpha1.TaintInUse, Value: v1alpha1.InUseTaintDevicePlugin, Code: "device-plugin",
		Meaning: "a device plugin has allocated the device to a pod",
		Effect:  "two allocations use one GPU",
		User:    wait,
		Admin:   "end the pod that has the GPU through the device plugin, and remove the device plugin from node NODE",
		Ends:    "the kubelet no longer lists the pod",
	},
	{
		Key: v1alpha1.TaintInUse, Value: v1alpha1.InUseTaintUnneededClaim, Code: "unneeded-claim",
		Meaning: "a claim that the cluster has forgotten or allocated elsewhere holds the device, and its processes may still run",
		Effect:  runsOn,
		User:    wait,
		Admin:   "nothing, if the taint goes within minutes; otherwise end the processes of the claim's pods on node NODE, which the agent's log names",
		Ends:    "the processes of the claim's pods have ended",
	},
	{
		Key: v1alpha1.TaintMIGMode, Code: "mig-mode",
		Meaning: "an administrator has switched the GPU to MIG mode, in which it cannot be used as a whole",
		Effect:  runsOn,
		User:    wait,
		Admin:   "switch the MIG mode off (nvidia-smi --id ADDRESS --multi-instance-gpu 0), or offer MIG on node NODE",
		Ends:    "the MIG mode is off",
	},
	{
		Key: v1alpha1.TaintComputeMode, Code: "compute-mode",
		Meaning: "an administrator has set a compute mode that excludes this use of the GPU",
		Effect:  runsOn,
		User:    wait,
		Admin:   "set the compute mode DEFAULT (nvidia-smi --id ADDRESS --compute-mode 0)",
		Ends:    "the compute mode is DEFAULT",
	},
	{
		Key: v1alpha1.TaintWithdrawn, Code: "withdrawn",
		Meaning: "the node no longer offers the device, and claims still hold it",
		Effect:  runsOn,
		User:    wait,
		Admin:   "nothing: the device goes when its claims have ended",
		Ends:    "the claims have ended, or the node offers the device again",
	},
	{
		Key: v1alpha1.TaintCordoned, Code: "cordoned",
		Meaning: "an administrator took the GPU out of use",
		Effect:  runsOn + "; no new claim gets it",
		User:    "nothing, if the program runs; the administrator may drain the GPU",
		Admin:   "when the GPU may be used again: kubectl gpu uncordon NODE/GPU_NAME",
		Ends:    "an administrator ends the cordon",
	},
	{
		Key: v1alpha1.ConditionShareInterrupted, Value: v1alpha1.ReasonMPSEnded, Code: "mps-interrupted",
		Meaning: "the MPS daemon of the share or its server ended",
		Effect:  "the programs of the share that ran then fail at their next CUDA call",
		User:    "start them again: delete the pod, so that its controller starts it",
		Admin:   "read why it ended: control.log and server.log of the device in the log folder of the MPS supervisor of node NODE, and the log of the kernel (dmesg)",
		Ends:    "the claim ends",
	},
	{
		Key: v1alpha1.ConditionShareUnserved, Value: v1alpha1.ReasonMPSNotRunning, Code: "mps-not-running",
		Meaning: "the MPS daemon of the share does not run, and cannot be started",
		Effect:  "the programs of the share fail, and new ones compute without the limits of MPS",
		User:    "wait for the administrator, then delete the pod, so that its controller starts it",
		Admin:   "read why it does not start: gpu-mps-supervisor status in the pod of the MPS supervisor of node NODE",
		Ends:    "the daemon answers again",
	},
	{
		Key: v1alpha1.ConditionShareWaits, Value: v1alpha1.ReasonOtherUser, Code: "mps-other-user",
		Meaning: "a program waits for shares of another user of this GPU",
		Effect:  "its first CUDA call returns when the programs of the other user have ended",
		User:    "run the pods that share the GPU as one user (runAsUser), or have the administrator switch mps.multiUser on",
		Admin:   "set mps.multiUser=true in the chart, and delete the pod of the MPS supervisor of node NODE once no share runs there: MPS daemons can end with it",
		Ends:    "the program computes, or has ended",
	},
}

const (
	xidPrefix   = "xid-"
	nvlink5     = "an NVLink 5 error"
	nvlinkHangs = "transfers between GPUs fail or hang"
)

func unhealthy(value, meaning, effect, user, admin, ends string) Cause {
	code := value
	if value == "" {
		code = "fault"
	}
	return Cause{v1alpha1.TaintUnhealthy, value, code, meaning, effect, user, admin, ends}
}

// xid returns the cause of an XID, or of all other XIDs for "".
func xid(number, meaning, effect, admin, ends string) Cause {
	return unhealthy(xidPrefix+number, meaning, effect, moveOn, admin, ends)
}

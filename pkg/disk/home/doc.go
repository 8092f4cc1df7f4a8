// SPDX-License-Identifier: Apache-2.0

// Package home manages the folder of a driver's agents on a node. It is in the
// kubelet's folder for the driver:
//
//	<kubelet's plugins>/<driver name>/
//	    agent/                the home
//	        claims/           records of claims
//	        mig-modes/        records of GPUs whose MIG mode claims have switched on
//	        mig-devices/      records of MIG devices that stay without claims
//	        time-slices/      records of GPUs whose time slice claims have changed
//	        compute-modes/    records of GPUs whose compute mode claims have changed
//	        faults/           records of GPUs with a fault
//	        events/           records of events about GPUs that have failed
//	        node-config/      the record of the configuration that the node follows
//	        memory-hook/      the memory hook with its C library, a folder for each version
//	        memory-limits/    the limits of containers
//	        memory-hooks.sock the agent's socket for memory hooks
//	        lock              the lock of claims and GPUs
//	        nvidia-cdi-hook   the hook in CDI specs
//	    dra-device-metadata/  belongs to upstream's kubeletplugin
//	    dra-….sock            belongs to it too; another one is in the kubelet's registry
//
// The last agent on a node removes all of these, unless claims still hold devices or
// another agent will follow:
//
//   - An agent holds the home from [Enter] until [Home.Leave] or its end. Several
//     agents may hold it at the same time, such as the old and the new agent of a
//     rolling update.
//   - An agent that leaves removes the home only if it is the last holder and there
//     are no records, in quarantine included. The records of the configuration and of
//     events do not count. An agent that enters meanwhile waits some milliseconds and creates a new home,
//     so a home is never removed while an agent holds it.
//   - If there are records, everything stays: a restarted container needs the hook,
//     and the next agent needs the records. So it does if the caller of [Home.Leave] knows
//     that an agent will follow: it needs the record of the configuration.
//   - An agent that is killed leaves everything to the next one. The first agent that
//     enters and the last one that leaves run a callback, in which they can remove
//     files of killed agents in other places, because no other agent is running.
//   - Files that are not in the list above belong to other programs. They stay, and
//     so do their folders.
//
// An agent must stop all its writers before it leaves. Package claim defines the
// meaning of the records.
package home

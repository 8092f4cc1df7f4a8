// SPDX-License-Identifier: Apache-2.0

// Package home is the one folder that the agents of a driver have on a node, in
// the folder that the kubelet has for the driver:
//
//	<kubelet's plugins>/<driver name>/
//	    agent/                the home
//	        claims/           records of claims
//	        mig-modes/        records of GPUs whose MIG mode claims have switched on
//	        time-slices/      records of GPUs whose time slice claims have changed
//	        lock              of claims and GPUs
//	        nvidia-cdi-hook   which CDI specs name
//	    dra-device-metadata/  upstream's kubeletplugin's
//	    dra-….sock            the same; another one is in the kubelet's registry
//
// The last agent that leaves a node takes all of it along, unless something is
// held:
//
//   - An agent holds the home from [Enter] until [Home.Leave] or its death. Any
//     number of agents hold it at a time: the old and the new one of a rolling
//     update, for example.
//   - An agent that leaves removes the home only if it is the last one that holds
//     it and nothing is recorded, not in quarantine either. One that enters
//     meanwhile waits for that, which takes milliseconds, and makes a new home:
//     what an agent has entered is never removed under it.
//   - What is recorded keeps everything: a container that is started again needs
//     the hook, and the next agent the records.
//   - An agent that dies leaves everything; the next one takes over. Of what it
//     leaves elsewhere, the first agent that enters and the last one that leaves
//     are told that nobody else can be using it.
//   - What is not in the list above is somebody else's and stays, with the
//     folders that it is in.
//
// So an agent leaves only when nothing of its own can write there any more. What
// the records mean is for package claim to know.
package home

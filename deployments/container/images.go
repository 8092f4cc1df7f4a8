// SPDX-License-Identifier: Apache-2.0

package main

// image is one of the driver's images. Its layers are, from the bottom: base,
// C library, one per program, and licences, so that a new program leaves all
// others unchanged.
type image struct {
	name        string
	title       string
	description string
	programs    []program
	entrypoint  string
	user        string
	// tag is a second tag for manifests of this repository that name no version.
	// The first tag is the version. Empty means no second tag.
	tag string
	// licenses of all that is in it, as an SPDX expression.
	licenses string
}

// program is an executable of an image, as /usr/bin/NAME.
type program struct {
	name string
	// folder of it below that of our programs; empty for that folder itself.
	folder string
	// onHost says that the program is copied to the host and runs there. The host may
	// have any C library or none, so the program must be static. it must be static.
	onHost bool
	// debian says that it is this machine's, of a Debian package, and not ours.
	debian bool
	// links are further names of it.
	links []string
}

// Users of images. The agent and the supervisor are root because the kubelet's
// folders, those of CDI and the devices and daemons that they make are root's.
const (
	root    = "0:0"
	nonRoot = nonRootID + ":" + nonRootID
)

// Licenses of parts of images: ours with the modules that are linked to it, the
// C library with libgcc, and the shell.
const (
	ours      = "Apache-2.0 AND BSD-3-Clause AND ISC AND MIT AND MPL-2.0"
	withC     = " AND LGPL-2.1-or-later AND GPL-3.0-or-later WITH GCC-exception-3.1"
	withShell = " AND GPL-2.0-only"
)

// Programs that several images have.
func agent() program      { return program{name: "gpu-kubelet-plugin"} }
func memoryHook() program { return program{name: "gpu-memory-hook"} }
func supervisor() program { return program{name: "gpu-mps-supervisor"} }
func cdiHook() program    { return program{name: "nvidia-cdi-hook", onHost: true} }
func simulator() program  { return program{name: "gpu-sim", folder: simFolder} }

// simFolder holds the programs that are built with the tag sim.
const simFolder = "sim"

// simulated returns the program that is built with the simulator.
func simulated(p program) program {
	p.folder = simFolder
	return p
}

// shell is for kubectl exec. No program of ours needs it.
func shell() program {
	return program{name: "busybox", debian: true, links: []string{"sh", "dirname"}}
}

// images returns all images. The variants for simulated hardware are apart so that
// no production node has a simulator or a shell. All their layers but those of the
// programs with the simulator are the layers of the production images.
func images() []image {
	return []image{
		{
			name:        "gpu-kubelet-plugin",
			title:       "GPU DRA driver: node agent",
			description: "Publishes a node's GPUs as ResourceSlices and prepares them for the pods that claim them.",
			programs:    []program{cdiHook(), agent(), memoryHook()},
			entrypoint:  "gpu-kubelet-plugin",
			user:        root,
			licenses:    ours + withC,
		},
		{
			name:        "gpu-kubelet-plugin-sim",
			title:       "GPU DRA driver: node agent for simulated GPUs",
			description: "The node agent with gpu-sim, for nodes whose GPUs are simulated.",
			programs:    []program{cdiHook(), simulated(agent()), simulated(memoryHook()), simulator(), shell()},
			entrypoint:  "gpu-kubelet-plugin",
			user:        root,
			licenses:    ours + withC + withShell,
		},
		{
			name:        "gpu-mps-supervisor",
			title:       "GPU DRA driver: MPS supervisor",
			description: "Runs the control daemons of CUDA's Multi-Process Service on a node.",
			programs:    []program{supervisor()},
			entrypoint:  "gpu-mps-supervisor",
			user:        root,
			licenses:    ours + withC,
		},
		{
			name:        "gpu-mps-supervisor-sim",
			title:       "GPU DRA driver: MPS supervisor for simulated GPUs",
			description: "The MPS supervisor with gpu-sim, for nodes whose GPUs are simulated.",
			programs:    []program{simulated(supervisor()), simulator(), shell()},
			entrypoint:  "gpu-mps-supervisor",
			user:        root,
			licenses:    ours + withC + withShell,
		},
		{
			name:        "gpu-probe",
			title:       "GPU DRA driver: probe",
			description: "Prints what a container was given of GPUs; `helm test` and the demos run it.",
			programs:    []program{{name: "probe"}},
			entrypoint:  "probe",
			user:        nonRoot,
			tag:         "demo",
			licenses:    ours,
		},
	}
}

// runtimeLibraries are the libraries that programs and libraries of the NVIDIA
// driver need. Our programs load or start these from the driver root, and with the
// image's C library: libnvidia-ml.so.1 (the agent), nvidia-smi (the agent), and
// nvidia-cuda-mps-control with its server and libcuda.so.1 (the supervisor). They
// are built for old C libraries, in which the parts below were apart.
func runtimeLibraries() []string {
	return []string{
		"libc.so.6",
		// Mathematics: the one part that is still apart.
		"libm.so.6",
		// Empty since version 2.34 of the C library, and still asked for by name.
		"libdl.so.2", "libpthread.so.0", "librt.so.1",
		// The C library itself opens it when a thread is cancelled or exits, and
		// ends the process where it is missing.
		"libgcc_s.so.1",
	}
}

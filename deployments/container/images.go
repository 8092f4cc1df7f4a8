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
	// have any C library or none, so the program must be static. A library for the host
	// is loaded by programs that have the C library.
	onHost bool
}

// Users of images. The agent and the supervisor are root because the kubelet's
// folders, those of CDI and the devices and daemons that they make are root's.
const (
	root    = "0:0"
	nonRoot = nonRootID + ":" + nonRootID
)

// Licenses of parts of images: ours with the modules that are linked to it, and the C
// library, alone or with libgcc.
const (
	ours       = "Apache-2.0 AND BSD-3-Clause AND ISC AND MIT AND MPL-2.0"
	withC      = " AND LGPL-2.1-or-later"
	withLibgcc = withC + " AND GPL-3.0-or-later WITH GCC-exception-3.1"
)

// simFolder holds the simulator of GPUs.
const simFolder = "sim"

// images returns all images. The simulator is in an image of its own, so that no
// production node has it.
func images() []image {
	return []image{
		{
			name:        "gpu-kubelet-plugin",
			title:       "GPU DRA driver: node agent",
			description: "Publishes a node's GPUs as ResourceSlices and prepares them for the pods that claim them.",
			programs:    []program{{name: "nvidia-cdi-hook", onHost: true}, {name: "gpu-kubelet-plugin"}, {name: "gpu-memory-hook", onHost: true}, {name: "gpu-memory-limit"}},
			entrypoint:  "gpu-kubelet-plugin",
			user:        root,
			licenses:    ours + withLibgcc,
		},
		{
			name:        "gpu-mps-supervisor",
			title:       "GPU DRA driver: MPS supervisor",
			description: "Runs the control daemons of CUDA's Multi-Process Service on a node.",
			programs:    []program{{name: "gpu-mps-supervisor"}},
			entrypoint:  "gpu-mps-supervisor",
			user:        root,
			licenses:    ours + withLibgcc,
		},
		{
			name:        "gpu-sim",
			title:       "GPU DRA driver: simulated GPUs",
			description: "Makes a folder of a node the root of a simulated NVIDIA driver, for nodes without a GPU.",
			// gpu-sim copies both to the host. It finds the library in its own folder.
			programs:   []program{{name: "gpu-sim", folder: simFolder, onHost: true}, {name: "libnvidia-ml.so.1", folder: simFolder, onHost: true}},
			entrypoint: "gpu-sim",
			user:       root,
			licenses:   ours + withC,
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

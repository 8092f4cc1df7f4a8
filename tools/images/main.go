// SPDX-License-Identifier: Apache-2.0

// Command images packs the driver's programs as archives of container images, for tests and demos on
// this machine. It needs no container engine. A dynamic program gets this machine's C library, so
// programs and library fit together. deployments/container/Dockerfile builds the images of a release.
//
// An archive is an OCI image layout, and has the manifest.json of "docker save" for the same blobs, so
// containerd, kind, docker and crane read it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// image is one of the driver's images.
type image struct {
	name string
	// programs are files below the folder of programs; each becomes /usr/bin/NAME. The first is the entry point.
	programs []string
	// onHost are the programs that the container copies to the host.
	onHost []string
	// tag is a second tag, for manifests of this repository that name no version.
	tag  string
	user string
}

// images are the same as the targets of the Dockerfile. The agent and the supervisor are root because
// the kubelet's folders, those of CDI, and the devices and daemons that they make are root's. The
// simulator has an image of its own, so that no production node has it.
func images() []image {
	return []image{
		{
			name:     "gpu-kubelet-plugin",
			programs: []string{"gpu-kubelet-plugin", "gpu-memory-hook", "gpu-memory-limit", "gpu-room", "nvidia-cdi-hook"},
			onHost:   []string{"gpu-memory-hook", "nvidia-cdi-hook"}, user: "0:0",
		},
		{name: "gpu-mps-supervisor", programs: []string{"gpu-mps-supervisor"}, user: "0:0"},
		{name: "gpu-sim", programs: []string{"sim/gpu-sim", "sim/libnvidia-ml.so.1"}, onHost: []string{"sim/gpu-sim", "sim/libnvidia-ml.so.1"}, user: "0:0"},
		{name: "gpu-probe", programs: []string{"probe"}, tag: "demo", user: "65532:65532"},
	}
}

func main() {
	bin := flag.String("bin", ".build/bin", "`DIR` with the programs from make build")
	out := flag.String("out", ".build/images", "`DIR` for the archives, and for images.json, which lists them")
	prefix := flag.String("prefix", "localhost/gpu-dra-driver", "`PREFIX` of the images' names")
	version := flag.String("version", "v0.0.0", "`VERSION` of the driver; with _ for +, it is the tag")
	flag.Parse()
	if err := write(*bin, *out, *prefix, strings.ReplaceAll(*version, "+", "_")); err != nil {
		fmt.Fprintf(os.Stderr, "images: %v\n", err)
		os.Exit(1)
	}
}

// write packs all images.
func write(bin, out, prefix, tag string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var list []fields
	for _, i := range images() {
		files, err := i.contents(bin)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		names := []string{prefix + "/" + i.name + ":" + tag}
		if i.tag != "" {
			names = append(names, prefix+"/"+i.name+":"+i.tag)
		}
		archive, err := pack(files, filepath.Base(i.programs[0]), i.user, names)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		if err := os.WriteFile(filepath.Join(out, i.name+".tar"), archive, 0o644); err != nil {
			return err
		}
		list = append(list, fields{"name": i.name, "reference": names[0], "archive": i.name + ".tar"})
	}
	text, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "images.json"), append(text, '\n'), 0o644)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed pytorch.py
var pytorchProgram []byte

// pytorch trains and decodes with the machine's own Python and PyTorch: one pod alone, shares, and time slices.
func pytorch(ctx context.Context, n *node) (err error) {
	python := cmp.Or(n.python, "python3")
	// -I leaves out the folder of this program and the variables of the caller.
	out, err := n.program(ctx, "", python, "-I", "-c", "import os, sys, torch; print(sys.executable, sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(torch.__file__)))")
	found := strings.Fields(out)
	if err != nil || len(found) != 4 {
		n.report.figure("skipped: %s has no PyTorch (-python PROGRAM): %v", python, err)
		return nil
	}
	folders, end, err := copies(machineFolders(found[1:]))
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(barrierDir, 0o755), os.WriteFile(filepath.Join(barrierDir, "pytorch.py"), pytorchProgram, 0o644)); err != nil {
		return err
	}
	for _, s := range n.sharings(ctx) {
		pods, err := n.manyPods(ctx, "pytorch-"+s.name, s.pods, func(dir string) pod {
			return pod{
				command: []string{found[0], "/barriers/pytorch.py"}, machine: folders,
				steps: []string{dir, strconv.Itoa(s.pods), "5"},
			}
		}, s.class, s.memory, s.compute, "")
		if err != nil {
			return err
		}
		lines, err := n.finish(ctx, 3*time.Minute, pods...)
		for _, kind := range []string{"train", "eager", "graph"} {
			n.workDone("pytorch-"+s.name, "a transformer of 16 layers ("+kind+")", kind, pods, lines)
		}
		if err := cmp.Or(err, n.clean(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// machineFolders returns the folders of the machine that a Python needs: its own ones, and those of the C library.
func machineFolders(own []string) []string {
	var folders []string
	for _, folder := range append([]string{"/usr", "/lib", "/lib64"}, own...) {
		within := slices.ContainsFunc(folders, func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") })
		if _, err := os.Stat(folder); err == nil && !within {
			folders = append(folders, folder)
		}
	}
	return folders
}

// copies mounts copies of folders of the machine, by their paths, until end is called. A container runtime makes files
// in the folders of a container, to mount the driver's over them, and these must not be made on the machine.
func copies(folders []string) (paths map[string]string, end func() error, err error) {
	dir := filepath.Join(barrierDir, ".machine")
	paths = map[string]string{}
	var mounts []string
	end = func() (err error) {
		for _, mount := range slices.Backward(mounts) {
			err = errors.Join(err, syscall.Unmount(mount, syscall.MNT_DETACH))
		}
		return err
	}
	mount := func(kind, target, options string) error {
		err := syscall.Mount(kind, target, kind, 0, options)
		if err != nil {
			return fmt.Errorf("mount %s on %s: %w", kind, target, err)
		}
		mounts = append(mounts, target)
		return nil
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), mount("tmpfs", dir, "mode=755")); err != nil {
		return nil, end, err
	}
	for i, folder := range folders {
		of := func(part string) string { return filepath.Join(dir, strconv.Itoa(i), part) }
		if err := errors.Join(os.MkdirAll(of("upper"), 0o755), os.MkdirAll(of("work"), 0o755), os.MkdirAll(of("all"), 0o755)); err != nil {
			return nil, end, err
		}
		if err := mount("overlay", of("all"), fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, of("upper"), of("work"))); err != nil {
			return nil, end, err
		}
		paths[folder] = of("all")
	}
	return paths, end, nil
}

// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Character device majors. NVIDIA's own is fixed; those of the UVM and of the
// MIG capabilities are given out by the kernel at run time, here always the
// same.
const (
	majorNVIDIA = 195
	majorUVM    = 510
	majorCaps   = 511
	majorIMEX   = 509

	minorControl = 255
	minorModeset = 254
)

// treeDirs are the folders of the tree.
var treeDirs = []string{"usr", "lib", "dev", "etc", "proc", "sys", "run"}

// tree is the root file system of a node. All paths are relative to its root.
type tree struct {
	root string
	node *node
}

func (s *Sim) tree() tree { return tree{root: s.Root(), node: s.node} }

// build makes the whole tree, in place of what may be left of one that was not
// finished.
func (t tree) build(st *State) error {
	for _, name := range treeDirs {
		if err := os.RemoveAll(t.path(name)); err != nil {
			return err
		}
	}
	for _, part := range []func() error{t.driver, t.dev, t.direct, t.proc, t.sys} {
		if err := part(); err != nil {
			return err
		}
	}
	if err := t.sync(&State{GPUs: make([]GPUState, len(t.node.gpus))}, st); err != nil {
		return err
	}
	return t.refreshSMITables(st)
}

// sync follows a change of the state: the boot ID, what belongs to MIG instances,
// and what nvidia-smi shows.
func (t tree) sync(before, after *State) error {
	if before.BootID != after.BootID {
		// Replaced as a whole: others read it at any time.
		const path = "proc/sys/kernel/random/boot_id"
		if err := t.write(path+".new", after.BootID+"\n"); err != nil {
			return err
		}
		if err := os.Rename(t.path(path+".new"), t.path(path)); err != nil {
			return err
		}
	}
	for i, s := range t.node.gpus {
		if err := t.syncMIG(s, before.GPUs[i].Instances, after.GPUs[i].Instances); err != nil {
			return err
		}
	}
	return t.syncSMITables(before, after)
}

// restore makes the tree follow the state, whatever parts of it a killed program has changed.
func (t tree) restore(st *State) error {
	none := &State{GPUs: make([]GPUState, len(t.node.gpus))}
	for _, s := range t.node.gpus {
		if err := t.removeMIG(s); err != nil {
			return err
		}
	}
	if err := t.sync(none, st); err != nil {
		return err
	}
	return t.refreshSMITables(st)
}

// driver makes the files of the driver: enough for a container toolkit to find them by
// name. [Sim.InstallLibrary] and [Sim.InstallPrograms] replace some of them.
func (t tree) driver() error {
	for _, name := range t.node.model.programs() {
		if err := replaceFile(t.path(filepath.Join("usr/bin", name)), []byte(missingProgram), 0o755); err != nil {
			return err
		}
	}
	version := t.node.model.DriverVersion
	dir := libraryDirs[t.node.model.Platform]
	for _, name := range []string{"libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libcudadebugger", "libnvidia-nvvm"} {
		if err := t.write(filepath.Join(dir, name+".so."+version), emptyLibrary(t.node.model.Platform, name+".so.1")); err != nil {
			return err
		}
		if err := t.link(filepath.Join(dir, name+".so.1"), name+".so."+version); err != nil {
			return err
		}
	}
	// GPUs before Ampere have firmware of their own, and it has no tables.
	if err := t.write(filepath.Join(filepath.Dir(firmware(version)), "gsp_tu10x.bin"), ""); err != nil {
		return err
	}
	return t.link(filepath.Join(dir, "libcuda.so"), "libcuda.so.1")
}

// dev makes the device nodes.
func (t tree) dev() error {
	nodes := []struct {
		name         string
		major, minor int
	}{
		{"nvidiactl", majorNVIDIA, minorControl},
		{"nvidia-modeset", majorNVIDIA, minorModeset},
		{"nvidia-uvm", majorUVM, 0},
		{"nvidia-uvm-tools", majorUVM, 1},
		{"nvidia-caps/nvidia-cap1", majorCaps, capConfig},
		{"nvidia-caps/nvidia-cap2", majorCaps, capMonitor},
	}
	if err := t.write(kernelLog, ""); err != nil {
		return err
	}
	for _, n := range nodes {
		if err := t.device("dev/"+n.name, n.major, n.minor); err != nil {
			return err
		}
	}
	for _, s := range t.node.gpus {
		if err := t.device(fmt.Sprintf("dev/nvidia%d", s.minor), majorNVIDIA, s.minor); err != nil {
			return err
		}
	}
	return nil
}

// proc makes what the driver shows of itself and its GPUs.
func (t tree) proc() error {
	version := t.node.model.moduleVersion()
	files := map[string]string{
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module  " + version + "  Release Build  (simulated)\n",
		"proc/devices":               fmt.Sprintf("Character devices:\n  1 mem\n%3d nvidia\n%3d nvidia-uvm\n%3d nvidia-caps\n%3d nvidia-caps-imex-channels\n\nBlock devices:\n", majorNVIDIA, majorUVM, majorCaps, majorIMEX),
		"proc/driver/nvidia/params":  "ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n",
	}
	if t.node.model.MemoryLimits == MemoryLimitsOff {
		files["proc/driver/nvidia/params"] += "RegistryDwords: \"RmMemacctMode=0\"\n"
	}
	if slices.ContainsFunc(t.node.gpus, func(s *spec) bool {
		return slices.ContainsFunc(s.links, func(l linkSpec) bool { return l.remote == remoteSwitch })
	}) {
		files["proc/901/comm"] = "nv-fabricmanage\n" // the kernel keeps 15 characters
	}
	for _, s := range t.node.gpus {
		files[fmt.Sprintf("proc/driver/nvidia/gpus/%s/information", s.address)] = fmt.Sprintf(
			"Model: \t\t %s\nIRQ:   \t\t %d\nGPU UUID: \t %s\nVideo BIOS: \t ??.??.??.??.??\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nDMA Mask: \t 0xfffffffffffff\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Firmware: \t %s\nGPU Excluded:\t No\n",
			s.kind.Name, 100+s.index, s.uuid, s.address, s.minor, version)
	}
	for path, content := range files {
		if err := t.write(path, content); err != nil {
			return err
		}
	}
	return t.capabilities()
}

func (t tree) path(relative string) string { return filepath.Join(t.root, relative) }

func (t tree) mkdir(relative string) error { return os.MkdirAll(t.path(relative), 0o755) }

func (t tree) write(relative, content string) error {
	if err := t.mkdir(filepath.Dir(relative)); err != nil {
		return err
	}
	return os.WriteFile(t.path(relative), []byte(content), 0o644)
}

func (t tree) link(relative, target string) error {
	if err := t.mkdir(filepath.Dir(relative)); err != nil {
		return err
	}
	return os.Symlink(target, t.path(relative))
}

// device creates a character device node. A process that may not create one creates
// an empty file instead, which is enough for programs that only list names.
func (t tree) device(relative string, major, minor int) error {
	if err := t.mkdir(filepath.Dir(relative)); err != nil {
		return err
	}
	path := t.path(relative)
	err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(uint32(major), uint32(minor))))
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, unix.EPERM):
		return os.WriteFile(path, nil, 0o666)
	case err != nil:
		return fmt.Errorf("make device node %s: %w", path, err)
	}
	// The mode of mknod passes through the umask, that of the driver's own
	// nodes does not.
	return os.Chmod(path, 0o666)
}

// realDevices reports whether the device nodes are real ones.
func (t tree) realDevices() bool {
	info, err := os.Stat(t.path("dev/nvidiactl"))
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

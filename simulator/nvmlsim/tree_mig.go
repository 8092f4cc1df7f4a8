// SPDX-License-Identifier: Apache-2.0

package nvmlsim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// How the driver numbers MIG capabilities: two for the whole machine, then for each
// GPU by its minor fifteen GPU instances, each with its own capability and eight of
// its compute instances.
const (
	capConfig        = 1
	capMonitor       = 2
	capFirstInstance = 3
	capInstances     = 15
	capPerInstance   = 9
	capFabric        = capFirstInstance + maxGPUs*capInstances*capPerInstance
)

func instanceCap(gpuMinor, instance int) int {
	return capFirstInstance + (gpuMinor*capInstances+instance)*capPerInstance
}

func computeCap(gpuMinor, instance, compute int) int {
	return instanceCap(gpuMinor, instance) + 1 + compute
}

// capabilities creates the files that do not depend on partitions: the table of all
// minors, and the capabilities to configure and to monitor.
func (t tree) capabilities() error {
	var b strings.Builder
	fmt.Fprintf(&b, "config %d\nmonitor %d\n", capConfig, capMonitor)
	for minor := range maxGPUs {
		for instance := range capInstances {
			fmt.Fprintf(&b, "gpu%d/gi%d/access %d\n", minor, instance, instanceCap(minor, instance))
			for compute := range capPerInstance - 1 {
				fmt.Fprintf(&b, "gpu%d/gi%d/ci%d/access %d\n", minor, instance, compute, computeCap(minor, instance, compute))
			}
		}
	}
	return errors.Join(
		t.write("proc/driver/nvidia-caps/mig-minors", b.String()),
		t.write("proc/driver/nvidia-caps/sys-minors", fmt.Sprintf("fabric-imex-mgmt %d\n", capFabric)),
		t.capability("proc/driver/nvidia/capabilities/mig/config", capConfig, 0o400),
		t.capability("proc/driver/nvidia/capabilities/mig/monitor", capMonitor, 0o444),
		t.capability("proc/driver/nvidia/capabilities/fabric-imex-mgmt", capFabric, 0o400),
		t.device(capNode(capConfig), majorCaps, capConfig),
		t.device(capNode(capMonitor), majorCaps, capMonitor),
	)
}

func (t tree) capability(path string, minor int, mode os.FileMode) error {
	return t.write(path, fmt.Sprintf("DeviceFileMinor: %d\nDeviceFileMode: %d\nDeviceFileModify: 1\n", minor, mode))
}

// syncMIG makes and removes what belongs to the instances of one GPU: their
// capabilities in /proc, and the device nodes of these.
func (t tree) syncMIG(s *spec, before, after []Instance) error {
	have, want := migMinors(s, before), migMinors(s, after)
	dir := fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig", s.minor)
	if s.kind.MIG != nil {
		if err := t.mkdir(dir); err != nil {
			return err
		}
	}
	for path, minor := range want {
		if _, ok := have[path]; ok {
			continue
		}
		if err := t.capability(filepath.Join(dir, path), minor, 0o444); err != nil {
			return err
		}
		if err := t.device(capNode(minor), majorCaps, minor); err != nil {
			return err
		}
	}
	for path, minor := range have {
		if _, ok := want[path]; ok {
			continue
		}
		// The directory goes with its capability, and with an instance go
		// those of its compute instances.
		if err := os.RemoveAll(filepath.Dir(t.path(filepath.Join(dir, path)))); err != nil {
			return err
		}
		if err := os.Remove(t.path(capNode(minor))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeMIG removes all capabilities of the instances of one GPU.
func (t tree) removeMIG(s *spec) error {
	if err := os.RemoveAll(t.path(fmt.Sprintf("proc/driver/nvidia/capabilities/gpu%d/mig", s.minor))); err != nil {
		return err
	}
	for minor := instanceCap(s.minor, 0); minor < instanceCap(s.minor+1, 0); minor++ {
		if err := os.Remove(t.path(capNode(minor))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func capNode(minor int) string { return "dev/" + capFile(minor) }

// capFile returns the path of a capability's node below dev.
func capFile(minor int) string { return fmt.Sprintf("nvidia-caps/nvidia-cap%d", minor) }

// migMinors returns the minor of each capability by its path below the GPU's.
func migMinors(s *spec, instances []Instance) map[string]int {
	minors := map[string]int{}
	for _, in := range instances {
		minors[fmt.Sprintf("gi%d/access", in.ID)] = instanceCap(s.minor, in.ID)
		for _, ci := range in.Compute {
			minors[fmt.Sprintf("gi%d/ci%d/access", in.ID, ci.ID)] = computeCap(s.minor, in.ID, ci.ID)
		}
	}
	return minors
}

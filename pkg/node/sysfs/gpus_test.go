// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/sysfs"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestGPUsListsTheGPUsOfTheKernelsDriver(t *testing.T) {
	files, links := map[string]string{}, map[string]string{}
	add := func(address, vendor, class, driver string) {
		dir := "sys/bus/pci/devices/" + address + "/"
		files[dir+"vendor"], files[dir+"class"] = vendor+"\n", class+"\n"
		if driver != "" {
			links[dir+"driver"] = "../../../bus/pci/drivers/" + driver
		}
	}
	add("0000:43:00.0", "0x10de", "0x030200", "nvidia")
	add("0000:1b:00.0", "0x10de", "0x030000", "nvidia")
	add("0000:1b:00.1", "0x10de", "0x040300", "snd_hda_intel") // its sound
	add("0000:05:00.0", "0x10de", "0x068000", "nvidia-nvswitch")
	add("0000:06:00.0", "0x10de", "0x068000", "nvidia") // NVSwitch
	add("0000:52:00.0", "0x10de", "0x030200", "vfio-pci")
	add("0000:61:00.0", "0x10de", "0x030200", "")
	add("0000:70:00.0", "0x1002", "0x030000", "amdgpu")
	add("0000:9d:00.0", "0x10de", "0x030200", "nvidia")
	files["proc/driver/nvidia/gpus/0000:9d:00.0/information"] = "Model: \t\t NVIDIA H100\nGPU Excluded:\t Yes\n"
	files["proc/driver/nvidia/gpus/0000:43:00.0/information"] = "Model: \t\t NVIDIA H100\nGPU Excluded:\t No\n"

	got, err := tree(t, files, links).GPUs()
	must(t, err)
	var names []string
	for _, a := range got {
		names = append(names, a.String())
	}
	require.Same(t, "GPUs", []string{"0000:1b:00.0", "0000:43:00.0"}, names)
}

func TestGPUsReturnsNoneWithoutAPCIBus(t *testing.T) {
	if got, err := sysfs.Root(t.TempDir()).GPUs(); err != nil || len(got) != 0 {
		t.Errorf("GPUs %v, %v; want none", got, err)
	}
}

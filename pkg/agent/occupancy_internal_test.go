// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/limits"
	"github.com/gpu-dra/gpu-dra-driver/pkg/procfs"
)

// The kernel shows the container of a process by the same ID.
func TestTheContainersThatTheHookHasAdmitted(t *testing.T) {
	const pod = "12345678-1234-1234-1234-123456789abc"
	for name, group := range map[string]string{
		"cgroupfs": "/kubepods/burstable/pod" + pod + "/c0ffee",
		"systemd":  "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12345678_1234_1234_1234_123456789abc.slice/cri-containerd-c0ffee.scope",
	} {
		t.Run(name, func(t *testing.T) {
			folder := limits.Folder(filepath.Join(t.TempDir(), "limits"))
			for device, of := range map[string]string{"a": group, "no-pod": "/system.slice/c0ffee"} {
				if err := folder.Open(device); err != nil {
					t.Fatal(err)
				}
				if _, err := folder.Admit(device, limits.Limit{Cgroup: "/sys/fs/cgroup" + of, ID: 7, GPU: "0000:1b:00.0", Bytes: 1}, 1); err != nil {
					t.Fatal(err)
				}
			}
			got, err := admitted(folder)("a")
			_, of := procfs.ContainerOf(group + "/below")
			if diff := cmp.Diff([]string{of}, got); err != nil || diff != "" || of != "c0ffee" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if got, err := admitted(folder)("no-pod"); err != nil || len(got) != 0 {
				t.Errorf("%q, %v for a container of no pod, want none", got, err)
			}
		})
	}
}

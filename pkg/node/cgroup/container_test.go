// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
)

func TestTheCgroupOfAContainerIsTheChildOfItsPods(t *testing.T) {
	const podUID = "0f7a1c1e-6b0e-4a53-9d1c-0d6a2f0c9b11"
	const slice = "/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2222_3333_4444_555555555555.slice"
	const pod = "/sys/fs/cgroup/kubepods/burstable/pod" + podUID
	for path, want := range map[string]string{
		slice + "/crio-c0ffee.scope":                          slice + "/crio-c0ffee.scope",
		slice + "/crio-c0ffee.scope/container":                slice + "/crio-c0ffee.scope",
		slice + "/cri-containerd-c0ffee.scope/container/init": slice + "/cri-containerd-c0ffee.scope",
		pod + "/c0ffee":                     pod + "/c0ffee",
		pod + "/c0ffee/pod" + podUID + "/x": pod + "/c0ffee",
		pod:                                 "",
		slice:                               "",
		"/sys/fs/cgroup/system.slice/docker-c0ffee.scope/a": "/sys/fs/cgroup/system.slice/docker-c0ffee.scope/a",
	} {
		if got := cgroup.ContainerGroup(path); got != want {
			t.Errorf("of %s: %q, want %q", path, got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package procfs_test

import (
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/procfs"
)

func TestAnAgentWithoutTheHostsPIDNamespaceSeesNoPods(t *testing.T) {
	for name, c := range map[string]struct {
		cgroup string
		want   bool
	}{
		"the host's init":                          {"0::/init.scope\n", true},
		"the first process of the agent's own pod": {"0::/kubepods/pod" + podUID + "/" + container + "\n", false},
	} {
		root := t.TempDir()
		process(t, root, 1, map[string]string{"cgroup": c.cgroup})
		got, err := procfs.Root(root).SeesPods()
		if err != nil || got != c.want {
			t.Errorf("process 1 is %s: sees pods: %t, %v; want %t", name, got, err, c.want)
		}
	}
}

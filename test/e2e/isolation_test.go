// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// shellPod is a pod whose container has a shell and busybox's tools, as root. Its rights are
// the usual ones of a container. A claim may be "".
func shellPod(name, claim string) string {
	manifest := strings.NewReplacer(
		"localhost/gpu-dra-driver/gpu-probe:demo", "localhost/gpu-dra/probe:test\n    command: [sleep, \"3600\"]",
	).Replace(pod(name, claim, ""))
	return manifest + "---\n"
}

// shell runs a script in the container of such a pod, and returns all of its output.
func shell(t *testing.T, namespace, pod, script string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), "exec", "-n", namespace, pod, "--", "sh", "-c", "("+script+") 2>&1 || true")
	must(t, err)
	return strings.TrimSpace(out)
}

// These are the manual tests of the requirement "Secure Accelerator Access" (KAR-0049) of
// kubernetes-sigs/ai-conformance.
func TestAContainerReachesTheGPUOfItsClaimAndNoOther(t *testing.T) {
	ns := namespaceFor(t, "isolation")
	apply(t, ns, claim("one", "", "")+claim("two", "", "")+shellPod("one", "one")+shellPod("two", "two")+shellPod("none", ""))
	ready(t, ns, "one", "two", "none")

	const gpus, openFirst = "ls /dev/nvidia[0-9]*", "cat /dev/nvidia[0-9]*"
	t.Run("a pod without a claim has no GPU, no control device and no library", func(t *testing.T) {
		if out := shell(t, ns, "none", "find /dev /usr -iname '*nvidia*' -o -name 'libcuda*'"); out != "" {
			t.Errorf("it has %s", out)
		}
	})
	nodes := map[string]string{}
	for _, name := range []string{"one", "two"} {
		nodes[name] = shell(t, ns, name, "set -- $(stat -c '%t %T' /dev/nvidia[0-9]*); echo $#: c $((0x$1)) $((0x$2))")
		if !strings.HasPrefix(nodes[name], "2: c ") {
			t.Fatalf("%s sees %q and has the device %q, want one GPU", name, shell(t, ns, name, gpus), nodes[name])
		}
		nodes[name] = strings.TrimPrefix(nodes[name], "2: ")
	}
	if nodes["one"] == nodes["two"] {
		t.Fatalf("both pods have the device %q", nodes["one"])
	}
	t.Run("a pod may open its own GPU", func(t *testing.T) {
		// The simulator has no kernel driver: the device cgroup admits the open, and then it
		// fails for another reason.
		if out := shell(t, ns, "one", openFirst); !strings.Contains(out, "No such device") {
			t.Errorf("cat says %q, want that no driver has the device", out)
		}
	})
	for from, to := range map[string]string{"one": "two", "two": "one", "none": "one"} {
		t.Run(fmt.Sprintf("pod %s cannot open the GPU of pod %s, even by a device node of its own", from, to), func(t *testing.T) {
			out := shell(t, ns, from, "mknod /tmp/gpu "+nodes[to]+" && cat /tmp/gpu")
			if !strings.Contains(out, "cat: ") || !strings.Contains(out, "Operation not permitted") {
				t.Errorf("the output is %q, want that the open is refused", out)
			}
		})
	}
	t.Run("nvidia-smi lists the GPU of the claim only", func(t *testing.T) {
		one, two := shell(t, ns, "one", "nvidia-smi -L"), shell(t, ns, "two", "nvidia-smi -L")
		if strings.Count(one, "UUID: GPU-") != 1 || strings.Count(two, "UUID: GPU-") != 1 || one == two {
			t.Errorf("pod one lists %q, pod two %q; want one GPU each", one, two)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// explained runs "kubectl gpu explain", and returns the output and the exit status.
func explained(ctx context.Context, args ...string) (out string, status int) {
	out, err := cluster.GPU(ctx, append([]string{"explain"}, args...)...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return out, exit.ExitCode()
	}
	return out, 0
}

// waitExplained waits until the first ten lines of an explanation have the texts.
func waitExplained(t *testing.T, ns, pod string, want int, texts ...string) (out string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		var status int
		out, status = explained(ctx, pod, "--namespace", ns)
		lines := strings.SplitN(out, "\n", 11)
		first := strings.Join(lines[:min(10, len(lines))], "\n")
		for _, text := range texts {
			if !strings.Contains(first, text) {
				return false, fmt.Sprintf("no %q in the first ten lines of\n%s", text, out), nil
			}
		}
		return status == want, fmt.Sprintf("exit status %d, want %d:\n%s", status, want, out), nil
	}))
	return out
}

// follow runs the command in an explanation that begins with a word, as a reader does.
func follow(t *testing.T, out, word string) {
	t.Helper()
	at := strings.Index(out, word)
	if at < 0 {
		t.Fatalf("no command %q in\n%s", word, out)
	}
	command, _, _ := strings.Cut(out[at:], "\n")
	if at > 0 && out[at-1] == '(' {
		command, _, _ = strings.Cut(command, ")")
	}
	command, _, _ = strings.Cut(command, ", or ")
	cmd := exec.CommandContext(t.Context(), "bash", "-o", "pipefail", "-c", command)
	path := []string{cluster.BinDir, cluster.Bin, filepath.Join(agent.SimDir(), "usr", "bin"), os.Getenv("PATH")}
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "GPU_SIM_STATE="+agent.SimDir(), "PATH="+strings.Join(path, string(filepath.ListSeparator)))
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, printed)
	}
}

func TestExplainOfAPodWhoseGPUFails(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "explain-fault")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	device := report(t, ns)["one-gpu/main"].Device
	waitExplained(t, ns, "one-gpu", 0, "pod "+ns+"/one-gpu: Running", "main: "+device, "it has the device alone")

	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := agent.Sim(ctx, "fault", "clear")
		must(t, errors.Join(err, declareRepaired(ctx, "all")))
	})
	_, err := agent.Sim(t.Context(), "fault", "xid", "--xid", "79", "--gpu", pciAddress(device))
	must(t, err)
	out := waitExplained(t, ns, "one-gpu", 3, device+" of node "+cluster.NodeName+" has failed: the GPU has fallen off the bus (xid-79, for ", "for the program: ", "What to do", "kubectl delete pod one-gpu")
	if strings.Contains(out, "Ready is True") {
		t.Errorf("a device with a fault is ready:\n%s", out)
	}
	// The remedy works.
	follow(t, out, "kubectl delete pod")
	must(t, cluster.WaitGone(t.Context(), ns, "one-gpu"))
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	waitExplained(t, ns, "one-gpu", 0, "Running")
	if other := report(t, ns)["one-gpu/main"].Device; other == device {
		t.Errorf("the pod has the device %s with a fault again", device)
	}
	remove(t, ns, "one-gpu")
}

func TestExplainOfAPodThatTheAgentRefuses(t *testing.T) {
	nothingLeft(t)
	withoutPolicies(t)
	ns := namespaceFor(t, "explain-refusal")
	apply(t, ns, claim("bad", "", opaque(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "sharring": {}}`))+pod("bad", "bad", ""))
	out := waitExplained(t, ns, "bad", 2, "pod "+ns+"/bad: ContainerCreating", "sharring", "waiting does not help: change the claim or its configuration")
	for _, prefix := range []string{"NodePrepareResources", "Failed to prepare dynamic resources"} {
		if strings.Contains(out, prefix) {
			t.Errorf("the prefix %q is printed:\n%s", prefix, out)
		}
	}
	if !strings.Contains(out, "agent of node "+cluster.NodeName+": pod ") {
		t.Errorf("no agent:\n%s", out)
	}
	remove(t, ns, "bad")
	nothingLeft(t)
}

// A tenant who reads the tenant's namespace only reads claims, limits and conditions.
func TestExplainForATenantOfOneNamespace(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "explain-tenant")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	for _, args := range [][]string{
		{"create", "role", "reader", "--verb=get,list,watch", "--resource=pods,events,resourceclaims.resource.k8s.io"},
		{"create", "rolebinding", "reader", "--role=reader", "--user=tenant"},
	} {
		_, err := cluster.Kubectl(t.Context(), append(args, "--namespace", ns)...)
		must(t, err)
	}
	must(t, waitHealth(t, ns, "Healthy"))
	out, status := explained(t.Context(), "one-gpu", "--namespace", ns, "--as", "tenant")
	for _, want := range []string{"one-gpu: Running", "you have no right to list resourceslices, deviceclasses, devicetaintrules", "ClusterRole gpu-dra-driver-devices", "it has the device alone"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// The kubelet reports the health to the owner of the pod.
	if status != 0 {
		t.Errorf("exit status %d, want 0:\n%s", status, out)
	}
	remove(t, ns, "one-gpu")
}

// A tenant who may list devices and the claims of one namespace does not read that devices of
// others are free.
func TestATenantReadsNoFreeDevicesOfOthers(t *testing.T) {
	nothingLeft(t)
	theirs, ns := namespaceFor(t, "partial-theirs"), namespaceFor(t, "partial-mine")
	apply(t, theirs, claim("all", "count: 8", "")+pod("all", "all", ""))
	ready(t, theirs, "all")
	for _, args := range [][]string{
		{"create", "role", "reader", "--verb=get,list,watch", "--resource=pods,events,resourceclaims.resource.k8s.io"},
		{"create", "rolebinding", "reader", "--role=reader", "--user=tenant"},
	} {
		_, err := cluster.Kubectl(t.Context(), append(args, "--namespace", ns)...)
		must(t, err)
	}
	_, err := cluster.Kubectl(t.Context(), "create", "clusterrolebinding", ns, "--clusterrole=gpu-dra-driver-devices", "--user=tenant")
	must(t, err)
	cleared(t, "clusterrolebinding/"+ns)
	apply(t, ns, claim("train", "", "")+pod("train", "train", ""))
	out := waitExplainedAs(t, "tenant", ns, "train", 2, "claims that you may not read hold them", "scheduler: ")
	if strings.Contains(out, "devices are free") || strings.Contains(out, "kubectl delete") {
		t.Errorf("a partial view speaks of all:\n%s", out)
	}
	for command, want := range map[string]string{"get": "not yours", "free gpu.nvidia.com": "at most 8", "get -o json": `"partial": true`} {
		out, err := cluster.GPU(t.Context(), append(strings.Fields(command), "--namespace", ns, "--as", "tenant")...)
		if must(t, err); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", command, want, out)
		}
	}
	remove(t, ns, "train")
	remove(t, theirs, "all")
}

// waitExplainedAs waits until the explanation for a user has the texts.
func waitExplainedAs(t *testing.T, user, ns, pod string, want int, texts ...string) (out string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		var status int
		out, status = explained(ctx, pod, "--namespace", ns, "--as", user)
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return false, fmt.Sprintf("no %q in\n%s", text, out), nil
			}
		}
		return status == want, fmt.Sprintf("exit status %d, want %d:\n%s", status, want, out), nil
	}))
	return out
}

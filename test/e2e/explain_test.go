// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
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

// kubectlGPU runs kubectl gpu, and returns the output and the exit status.
func kubectlGPU(ctx context.Context, args ...string) (out string, status int) {
	out, err := cluster.GPU(ctx, args...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return out, exit.ExitCode()
	}
	return out, 0
}

// waitPrinted runs kubectl gpu until missing returns "" for its output and exit status. It returns
// the output. Until then missing returns the reason why the output is not the wanted one.
func waitPrinted(t *testing.T, command []string, missing func(out string, status int) string) (out string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		var status int
		out, status = kubectlGPU(ctx, command...)
		reason := missing(out, status)
		return reason == "", fmt.Sprintf("%s: kubectl gpu %s printed\n%s", reason, strings.Join(command, " "), out), nil
	}))
	return out
}

// waitExplained waits until an explanation has the exit status, and the texts in its first ten
// lines. It returns the explanation.
func waitExplained(t *testing.T, ns, pod string, want int, texts ...string) string {
	t.Helper()
	return waitPrinted(t, []string{"explain", pod, "--namespace", ns}, func(out string, status int) string {
		return cmp.Or(lacks(firstLines(out), texts...), wrongStatus(status, want))
	})
}

// firstLines returns the first ten lines of an output.
func firstLines(out string) string {
	lines := strings.SplitN(out, "\n", 11)
	return strings.Join(lines[:min(10, len(lines))], "\n")
}

// lacks returns a reason if an output lacks one of the texts, and otherwise "".
func lacks(out string, texts ...string) string {
	for _, text := range texts {
		if !strings.Contains(out, text) {
			return fmt.Sprintf("no %q", text)
		}
	}
	return ""
}

// wrongStatus returns a reason if an exit status is not the wanted one, and otherwise "".
func wrongStatus(status, want int) string {
	if status == want {
		return ""
	}
	return fmt.Sprintf("exit status %d, want %d", status, want)
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

// letTenantRead lets the user "tenant" read the pods, events and claims of a namespace.
func letTenantRead(t *testing.T, ns string) {
	t.Helper()
	kubectl(t, "create", "role", "reader", "--namespace", ns, "--verb=get,list,watch", "--resource=pods,events,resourceclaims.resource.k8s.io")
	kubectl(t, "create", "rolebinding", "reader", "--namespace", ns, "--role=reader", "--user=tenant")
}

// A tenant who reads the tenant's namespace only reads claims, limits and conditions.
func TestExplainForATenantOfOneNamespace(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "explain-tenant")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	letTenantRead(t, ns)
	must(t, waitHealth(t, ns, "Healthy"))
	device := report(t, ns)["one-gpu/main"].Device
	out, status := kubectlGPU(t.Context(), "explain", "one-gpu", "--namespace", ns, "--as", "tenant")
	for _, want := range []string{"one-gpu: Running", "main: " + device, "you have no right to list resourceslices, deviceclasses, devicetaintrules", "ClusterRole gpu-dra-driver-devices", "it has the device alone"} {
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
	letTenantRead(t, ns)
	kubectl(t, "create", "clusterrolebinding", ns, "--clusterrole=gpu-dra-driver-devices", "--user=tenant")
	cleared(t, "clusterrolebinding/"+ns)
	apply(t, ns, claim("train", "", "")+pod("train", "train", ""))
	out := waitPrinted(t, []string{"explain", "train", "--namespace", ns, "--as", "tenant"}, func(out string, status int) string {
		return cmp.Or(lacks(out, "claims that you may not read hold them", "scheduler: "), wrongStatus(status, 2))
	})
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

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// waitDeviceStatus waits until the claim's status.devices describes the device
// of a row: Ready, with its UUID and PCI address.
func waitDeviceStatus(ctx context.Context, namespace, claim string, row harness.Row) error {
	return harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		c, err := cluster.Client.ResourceV1().ResourceClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		for _, device := range c.Status.Devices {
			if device.Device == row.Device {
				return describes(device, row)
			}
		}
		return false, fmt.Sprintf("status.devices of %s says nothing of %s", claim, row.Device), nil
	})
}

func describes(device resourceapi.AllocatedDeviceStatus, row harness.Row) (bool, string, error) {
	if !meta.IsStatusConditionTrue(device.Conditions, "Ready") {
		return false, fmt.Sprintf("%s is not Ready: %v", device.Device, device.Conditions), nil
	}
	var data struct {
		UUID       string `json:"uuid"`
		PCIAddress string `json:"pciBusID"`
	}
	if device.Data == nil {
		return false, device.Device + " has no data", nil
	}
	if err := json.Unmarshal(device.Data.Raw, &data); err != nil {
		return false, "", err
	}
	if data.UUID != row.UUID || data.PCIAddress != pciAddress(row.Device) {
		return false, "", fmt.Errorf("status.devices says %s, want the UUID %s and the address of %s", device.Data.Raw, row.UUID, row.Device)
	}
	return true, "", nil
}

func TestTheKubeletReportsTheHealthOfAPodsGPU(t *testing.T) {
	ns := namespaceFor(t, "health")
	apply(t, ns, "demo/whole-gpu/one-gpu.yaml")
	ready(t, ns, "one-gpu")
	device := report(t, ns)["one-gpu/main"].Device
	must(t, waitHealth(t, ns, "Healthy"))

	t.Cleanup(func() {
		heal(t)
		must(t, declareRepaired(context.WithoutCancel(t.Context()), "all"))
	})
	sim(t, "fault", "xid", "--xid", "79", "--gpu", pciAddress(device))
	must(t, waitHealth(t, ns, "Unhealthy"))
	must(t, waitTaints(t, device, 1))
	failed := fmt.Sprintf("%s of node %s is unhealthy (xid-79): the GPU has fallen off the bus.", device, cluster.NodeName)
	must(t, waitHealthEvents(t, ns, "Warning", "GPUUnhealthy", failed, 1))

	// An agent that was killed knows the fault when it is ready; an administrator's word ends it.
	must(t, agent.Kill(t.Context()))
	must(t, agent.Start(t.Context()))
	if found, _, err := unhealthy(t.Context(), device); err != nil || !found {
		t.Errorf("after a restart of the agent %s is tainted: %t (%v), want the fault to stay", device, found, err)
	}
	must(t, waitHealth(t, ns, "Unhealthy"))
	must(t, declareRepaired(t.Context(), device))
	must(t, waitTaints(t, device, 0))
	must(t, waitHealth(t, ns, "Healthy"))
	must(t, waitHealthEvents(t, ns, "Normal", "GPUHealthy", device+" of node "+cluster.NodeName+" is healthy again (it was xid-79).", 1))
	// The restart has repeated no event.
	must(t, waitHealthEvents(t, ns, "Warning", "GPUUnhealthy", failed, 1))
}

// waitHealthEvents waits until kubectl shows that many events on the pod and on its claim, all
// with the text.
func waitHealthEvents(t *testing.T, namespace, kind, reason, text string, want int) error {
	return harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "--namespace", namespace, "get", "events", "--field-selector", "type="+kind+",reason="+reason,
			"--output", "jsonpath={range .items[*]}{.involvedObject.kind} {.message}{\"\\n\"}{end}")
		if err != nil {
			return false, "", err
		}
		count := map[string]int{}
		for line := range strings.Lines(out) {
			object, message, _ := strings.Cut(line, " ")
			if strings.HasPrefix(message, text) {
				count[object]++
			}
		}
		return count["Pod"] == want && count["ResourceClaim"] == want && len(count) == 2,
			fmt.Sprintf("want %d events %s on pod and claim with %q, have:\n%s", want, reason, text, out), nil
	})
}

// declareRepaired annotates the node: all faults of the device until now are repaired.
func declareRepaired(ctx context.Context, device string) error {
	word := fmt.Sprintf("gpu.nvidia.com/repaired=%s@%s", device, time.Now().UTC().Format(time.RFC3339Nano))
	_, err := cluster.Kubectl(ctx, "annotate", "--overwrite", "nodes", "--all", word)
	return err
}

func waitTaints(t *testing.T, device string, want int) error {
	return harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		devices, err := cluster.Devices(ctx)
		taints := devices[device].Taints
		return len(taints) == want, fmt.Sprintf("%s has the taints %v, want %d", device, taints, want), err
	})
}

func waitHealth(t *testing.T, namespace, want string) error {
	return harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		pod, err := cluster.Client.CoreV1().Pods(namespace).Get(ctx, "one-gpu", metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		for _, container := range pod.Status.ContainerStatuses {
			for _, resource := range container.AllocatedResourcesStatus {
				for _, health := range resource.Resources {
					if string(health.Health) == want {
						return true, "", nil
					}
				}
			}
		}
		return false, fmt.Sprintf("want %s in %+v", want, pod.Status.ContainerStatuses), nil
	})
}

// pciAddress of a device of the models used here: gpu-1b-00 is 0000:1b:00.0.
func pciAddress(device string) string {
	return "0000:" + strings.Replace(strings.TrimPrefix(device, "gpu-"), "-", ":", 1) + ".0"
}

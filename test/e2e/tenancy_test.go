// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

func TestTenancy(t *testing.T) {
	nothingLeft(t)
	label(t, "example.com/gpu-monitor=true")
	label(t, "gpu.nvidia.com/offer=share.monitor")
	published(t, "node-gpus", true)
	t.Cleanup(func() {
		nothingLeft(t)
		label(t, "example.com/gpu-monitor-")
		label(t, "gpu.nvidia.com/offer-")
		published(t, "node-gpus", false)
	})
	t.Run("a quota counts GPUs in every form of request", testQuota)
	t.Run("a class of a team is refused to others", testTeamClass)
	t.Run("reserved GPUs stay free for their team", testReserved)
	t.Run("agents monitor GPUs that are all in use", testMonitoring)
	t.Run("monitoring is refused in all other namespaces", testMonitoringRefused)
}

// label the node; "KEY-" removes a label.
func label(t *testing.T, label string) {
	t.Helper()
	kubectl(t, "label", "--overwrite", "node", cluster.NodeName, label)
}

// published waits until the device is there or not.
func published(t *testing.T, device string, want bool) {
	t.Helper()
	must(t, harness.Until(context.WithoutCancel(t.Context()), func(ctx context.Context) (bool, string, error) {
		devices, err := cluster.Devices(ctx)
		_, is := devices[device]
		return is == want, fmt.Sprintf("%s published: %v", device, is), err
	}))
}

// publishes waits until that many devices are published.
func publishes(t *testing.T, count int) {
	t.Helper()
	must(t, harness.Until(context.WithoutCancel(t.Context()), func(ctx context.Context) (bool, string, error) {
		devices, err := cluster.Devices(ctx)
		return len(devices) == count, fmt.Sprintf("%d devices are published, want %d", len(devices), count), err
	}))
}

// try sends a manifest to the API server as a dry run. It returns the refusal, or ""
// if the manifest is admitted.
func try(t *testing.T, namespace, manifest string) string {
	t.Helper()
	out, err := cluster.KubectlInput(t.Context(), manifest, "create", "--dry-run=server", "-n", namespace, "-f", "-")
	if err == nil {
		return ""
	}
	return out
}

// refused reports an error unless the manifest is refused with all of the words.
func refused(t *testing.T, namespace, manifest string, words ...string) {
	t.Helper()
	message := try(t, namespace, manifest)
	for _, word := range words {
		if !strings.Contains(message, word) {
			t.Errorf("in namespace %s, %s\nis answered with %q, want %q", namespace, manifest, message, word)
		}
	}
}

// cleared removes objects that belong to no namespace at the test's end.
func cleared(t *testing.T, objects ...string) {
	t.Helper()
	t.Cleanup(func() {
		_, err := cluster.Kubectl(context.WithoutCancel(t.Context()), append([]string{"delete", "--ignore-not-found"}, objects...)...)
		if err != nil {
			t.Error(err)
		}
	})
}

// of another class than claims have otherwise.
func of(class, claim string) string {
	return strings.ReplaceAll(claim, "deviceClassName: gpu.nvidia.com", "deviceClassName: "+class)
}

func template(claim string) string {
	spec := claim[strings.Index(claim, "spec:"):]
	head := strings.ReplaceAll(claim[:len(claim)-len(spec)], "kind: ResourceClaim", "kind: ResourceClaimTemplate")
	return head + "spec:\n  " + strings.ReplaceAll(strings.TrimSuffix(spec, "---\n"), "\n", "\n  ") + "\n---\n"
}

// twoTeams makes the namespaces of two teams and applies a recipe.
func twoTeams(t *testing.T) (ours, others string) {
	t.Helper()
	cleared(t, "validatingadmissionpolicybinding/gpu-classes-of-teams", "validatingadmissionpolicy/gpu-classes-of-teams", "deviceclass/vision.example.com")
	ours, others = namespaceFor(t, "vision"), namespaceFor(t, "language")
	apply(t, "", "demo/tenancy/team-class.yaml")
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		message := try(t, others, of("vision.example.com", claim("theirs", "", "")))
		return strings.Contains(message, "is for team vision"), "the policy is not in force: " + message, nil
	}))
	return ours, others
}

func testTeamClass(t *testing.T) {
	ours, others := twoTeams(t)
	ready(t, ours, "vision")
	if device := report(t, ours)["vision/main"].Device; device != "gpu-1b-00" && device != "gpu-43-00" {
		t.Errorf("the team's pod has %s, want a GPU of its class", device)
	}
	const why = "the class vision.example.com is for team vision: for namespaces with the label example.com/team=vision"
	theirs := of("vision.example.com", claim("theirs", "", ""))
	refused(t, others, theirs, why)
	refused(t, others, template(theirs), why)
	refused(t, others, strings.ReplaceAll(theirs, "exactly:", "firstAvailable:\n      - name: a"), why)
	if message := try(t, others, claim("any", "", "")); message != "" {
		t.Errorf("a class for all namespaces is refused: %s", message)
	}
	// Every class is an extended resource too; the scheduler makes the claim.
	apply(t, others, pod("theirs", "", "deviceclass.resource.kubernetes.io/vision.example.com: 1"))
	_, err := cluster.WaitEvent(t.Context(), others, "theirs", why)
	must(t, err)
	remove(t, others, "theirs")
	remove(t, ours, "vision")
}

func testReserved(t *testing.T) {
	needsKubernetes(t, "1.37", "DeviceTaintRules")
	ours, others := twoTeams(t)
	cleared(t, "validatingadmissionpolicybinding/gpu-reservations", "validatingadmissionpolicy/gpu-reservations", "devicetaintrule/vision-1b", "devicetaintrule/vision-43", "devicetaintrule/repair")
	apply(t, "", "demo/tenancy/reserved.yaml")
	tolerating := func(toleration string) string {
		return claim("tolerating", "tolerations: ["+toleration+"]", "")
	}
	must(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		message := try(t, others, tolerating("{operator: Exists}"))
		return strings.Contains(message, "are for the team"), "the policy is not in force: " + message, nil
	}))

	// Six GPUs are free for all namespaces, and a seventh is not.
	apply(t, others, claim("six", "count: 6", "")+pod("six", "six", ""))
	ready(t, others, "six")
	// The team's pod came before the taint; one that comes now tolerates it.
	remove(t, ours, "vision")
	apply(t, "", "demo/tenancy/team-class.yaml")
	ready(t, ours, "vision")
	apply(t, others, pod("seventh", "", "nvidia.com/gpu: 1"))
	_, err := cluster.Unschedulable(t.Context(), others, "seventh")
	must(t, err)

	for _, toleration := range []string{"{key: example.com/reserved, value: vision}", "{key: example.com/reserved, operator: Exists}", "{operator: Exists}"} {
		refused(t, others, tolerating(toleration), "GPUs with the taint example.com/reserved are for the team that is its value", "it has no label example.com/team")
		refused(t, others, template(tolerating(toleration)), "it has no label example.com/team")
	}
	refused(t, ours, tolerating("{key: example.com/reserved, value: language}"), "this namespace may tolerate example.com/reserved=vision")
	for ns, toleration := range map[string]string{ours: "{key: example.com/reserved, value: vision}", others: "{key: example.com/other, operator: Exists}"} {
		if message := try(t, ns, tolerating(toleration)); message != "" {
			t.Errorf("%s in namespace %s is refused: %s", toleration, ns, message)
		}
	}

	admins := namespaceFor(t, "admins")
	kubectl(t, "label", "namespace", admins, "resource.kubernetes.io/admin-access=true")
	if message := try(t, admins, tolerating("{operator: Exists}")); message != "" {
		t.Errorf("refused to administrators: %s", message)
	}

	// A taint with NoExecute also ends what runs.
	apply(t, "", `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata:
  name: repair
spec:
  deviceSelector: {driver: gpu.nvidia.com, pool: `+cluster.NodeName+`, device: gpu-df-00}
  taint: {key: example.com/repair, effect: NoExecute}
`)
	must(t, cluster.WaitGone(t.Context(), others, "six"))
	remove(t, ours, "vision")
	remove(t, others, "seventh")
}

func testMonitoring(t *testing.T) {
	users := namespaceFor(t, "users")
	apply(t, users, claim("all-eight", "count: 8", "")+pod("all-eight", "all-eight", ""))
	ready(t, users, "all-eight")
	before := report(t, users)

	ns := namespaceFor(t, "gpu-monitoring")
	apply(t, "", "demo/tenancy/monitoring.yaml")
	monitor := onlyPod(t, ns)
	ready(t, ns, monitor)
	row := report(t, ns)[monitor+"/main"]
	var want []string
	for i := range 8 {
		want = append(want, fmt.Sprintf("/dev/nvidia%d", i))
	}
	want = append(want, "/dev/nvidia-caps/nvidia-cap2")
	if diff := cmp.Diff(want, row.Saw); diff != "" || row.Device != "node-gpus" {
		t.Errorf("%s of device %s sees (-want +got):\n%s", monitor, row.Device, diff)
	}
	must(t, waitReadyStatus(t, ns, "node-gpus"))

	// A second monitor runs too, and neither blocks other pods.
	apply(t, ns, of("monitor.nvidia.com", claim("second", "adminAccess: true", ""))+pod("second", "second", ""))
	ready(t, ns, "second")
	apply(t, users, pod("ninth", "", "nvidia.com/gpu: 1"))
	_, err := cluster.Unschedulable(t.Context(), users, "ninth")
	must(t, err)
	if diff := cmp.Diff(before, report(t, users)); diff == "" {
		t.Error("the report does not show the pod that waits")
	} else if after := report(t, users); !cmp.Equal(before["all-eight/main"], after["all-eight/main"]) {
		t.Errorf("who has the GPUs changed from %v to %v", before, after)
	}

	remove(t, users, "all-eight")
	ready(t, users, "ninth")
	remove(t, users, "ninth")
	remove(t, ns, "second")
	kubectl(t, "delete", "daemonset", "-n", ns, "gpu-monitor")
	must(t, cluster.WaitGone(t.Context(), ns, monitor))
	nothingLeft(t)
}

// onlyPod of a namespace, once it is there.
func onlyPod(t *testing.T, namespace string) (name string) {
	t.Helper()
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		pods, err := cluster.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(pods.Items) != 1 {
			return false, "want one pod", err
		}
		name = pods.Items[0].Name
		return true, "", nil
	}))
	return name
}

// waitReadyStatus waits until a claim of the namespace has the device, and
// status.devices says that it is ready.
func waitReadyStatus(t *testing.T, namespace, device string) error {
	t.Helper()
	return harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		claims, err := cluster.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, "", err
		}
		for _, c := range claims.Items {
			for _, d := range c.Status.Devices {
				ready := slices.ContainsFunc(d.Conditions, func(c metav1.Condition) bool { return c.Type == "Ready" && c.Status == metav1.ConditionTrue })
				if d.Device == device && ready {
					return true, "", nil
				}
			}
		}
		return false, "no claim's status.devices has " + device + " as ready", nil
	})
}

func testMonitoringRefused(t *testing.T) {
	tenant, admins := namespaceFor(t, "tenant"), namespaceFor(t, "admins")
	kubectl(t, "label", "namespace", admins, "resource.kubernetes.io/admin-access=true")

	// At admission.
	watching := of("monitor.nvidia.com", claim("watching", "adminAccess: true", ""))
	for _, manifest := range []string{watching, template(watching)} {
		refused(t, tenant, manifest, "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace")
		if message := try(t, admins, manifest); message != "" {
			t.Errorf("refused in a namespace that may monitor: %s", message)
		}
	}

	// At prepare, whatever the cluster has admitted: through a class that no
	// policy knows.
	cleared(t, "deviceclass/anything.example.com")
	apply(t, "", `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: anything.example.com
spec:
  selectors:
  - cel: {expression: "device.driver == 'gpu.nvidia.com'"}
`)
	only := func(kind string) string {
		return `selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].?type.orValue('') == '` + kind + `'"}}]`
	}
	for _, tc := range []struct{ name, namespace, request, want string }{
		{"tenant-watching", tenant, only("monitor"), "it is all GPUs of the node, for monitoring agents only: the request needs adminAccess: true"},
		{"admin-on-a-gpu", admins, only("gpu") + "\nadminAccess: true", "admin access would add another claim to the same device; see https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/events.md#event-texts"},
	} {
		apply(t, tc.namespace, of("anything.example.com", claim(tc.name, tc.request, ""))+pod(tc.name, tc.name, ""))
		_, err := cluster.WaitEvent(t.Context(), tc.namespace, tc.name, tc.want)
		must(t, err)
		remove(t, tc.namespace, tc.name)
	}
	nothingLeft(t)
}

// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	k8sresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// server returns a client of an API server with the objects.
func server(w *fleettest.World) *fake.Clientset {
	all := slices.Concat(objects(w.Nodes), objects(w.Pods), objects(w.Claims), objects(w.Classes), objects(w.Slices), objects(w.TaintRules))
	return fake.NewClientset(all...)
}

// installed returns a client of a cluster with an agent that is ready on each node.
func installed(t *testing.T, w *fleettest.World) *fake.Clientset {
	t.Helper()
	client := server(w)
	set := daemonSet("agent", "--driver-name=gpu.nvidia.com")
	require.NoError(t, client.Tracker().Add(set))
	require.NoError(t, client.Tracker().Add(policy("gpus-own-slices")))
	for _, node := range w.Nodes {
		require.NoError(t, client.Tracker().Add(podOf(set, "agent-"+node.Name, node.Name)))
	}
	return client
}

// daemonSet returns a DaemonSet of the driver in the namespace "gpus", whose chart names a viewer.
func daemonSet(component string, args ...string) *appsv1.DaemonSet {
	labels := map[string]string{"app.kubernetes.io/name": "gpu-dra-driver", "app.kubernetes.io/component": component}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpus", Name: component, Labels: labels, UID: types.UID(component)},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationViewerAccount: "viewer"}},
			Spec: corev1.PodSpec{ServiceAccountName: component, Containers: []corev1.Container{{
				Image: component, Args: args, Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 9000}},
			}}},
		}},
		Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 1, CurrentNumberScheduled: 1, UpdatedNumberScheduled: 1},
	}
}

// podOf returns a pod of a DaemonSet that is ready.
func podOf(set *appsv1.DaemonSet, name, node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: name, Labels: set.Labels, UID: types.UID(set.Name + "-uid"),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec:   *set.Spec.Template.Spec.DeepCopy(),
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	pod.Spec.NodeName = node
	return pod
}

// policy returns a policy of the chart, which names the driver's namespace.
func policy(name string) *admissionv1.ValidatingAdmissionPolicy {
	return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"app.kubernetes.io/name": "gpu-dra-driver"},
		Annotations: map[string]string{v1alpha1.AnnotationDriverNamespace: "gpus"},
	}}
}

func objects[T runtime.Object](all []T) []runtime.Object {
	var plain []runtime.Object
	for _, o := range all {
		plain = append(plain, o)
	}
	return plain
}

// kubeconfig returns the path of a kubeconfig.
func kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(`{apiVersion: v1, kind: Config, current-context: test,
  clusters: [{name: test, cluster: {server: "https://test"}}], contexts: [{name: test, context: {cluster: test}}]}`), 0o600))
	return path
}

// run runs the command, and returns its output and its error output.
func run(t *testing.T, client kubernetes.Interface, args ...string) (out, problems string) {
	t.Helper()
	out, problems, _ = runBy(t, kubeconfig(t), to(client), args...)
	return out, problems
}

// to connects to a client.
func to(client kubernetes.Interface) connectFunc {
	return func(clientcmd.ClientConfig) (kubernetes.Interface, error) { return client, nil }
}

// runBy is like run with a kubeconfig and a connection, and returns the exit status too.
func runBy(t *testing.T, kubeconfig string, connect connectFunc, args ...string) (out, problems string, status int) {
	t.Helper()
	t.Setenv("KUBECONFIG", kubeconfig)
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	cmd := newCommand(streams, connect)
	cmd.SetArgs(append([]string{}, args...)) // of nil, cobra takes the ones of the test
	status = execute(t.Context(), cmd, streams)
	return stdout.String(), stderr.String(), status
}

// lines compares lines after spaces at their ends.
func lines(t *testing.T, got, want string) {
	t.Helper()
	clean := func(s string) []string {
		var all []string
		for line := range strings.Lines(strings.TrimSpace(s)) {
			all = append(all, strings.Join(strings.Fields(line), " "))
		}
		return all
	}
	require.Same(t, "output", clean(want), clean(got))
}

func shared(t *testing.T) *fleettest.World {
	w := fleettest.New(t, "a=t4 share")
	w.Hold("a", "whole", "")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi compute=50")
	return w
}

func TestANodeOfWhichSlicesAreMissing(t *testing.T) {
	w := shared(t)
	w.Slices[0].Spec.Pool.ResourceSliceCount++
	for _, command := range []string{"get", "who", "free"} {
		if _, problems := run(t, installed(t, w), command); !strings.Contains(problems, "Some ResourceSlices of a are missing: ") {
			t.Errorf("%s says %q", command, problems)
		}
	}
}

func TestGet(t *testing.T) {
	out, problems := run(t, installed(t, shared(t)))
	lines(t, out+problems, `
NODE GPU MODEL MODE CLAIMS MEMORY COMPUTE HEALTH
a gpu-18-00 Tesla T4 whole 1 14.6Gi/14.6Gi 100% ok
a gpu-3b-00 Tesla T4 shared 1 7.0Gi/14.6Gi 50% ok
a gpu-86-00 Tesla T4 free 0 0.0Gi/14.6Gi 0% ok
a gpu-af-00 Tesla T4 free 0 0.0Gi/14.6Gi 0% ok`)
}

func TestWho(t *testing.T) {
	out, problems := run(t, installed(t, shared(t)), "who", "-n", "default")
	lines(t, out+problems, `
NAMESPACE POD CONTAINER CLAIM NODE DEVICE MEMORY COMPUTE HEALTH LIMITED BY
default half main half a gpu-3b-00 7.0Gi 50% ok -
default whole main whole a gpu-18-00 14.6Gi 100% ok -`)
}

func TestWhoOfAPodGroup(t *testing.T) {
	w := fleettest.New(t, "a=t4 share")
	w.HoldForGroup("a", "gang", "class=mps.nvidia.com memory=7Gi", "gang-0", "gang-1")
	w.HoldForGroup("a", "ended", "class=mps.nvidia.com memory=7Gi")
	w.Hold("a", "whole", "")
	out, problems := run(t, installed(t, w), "who", "-n", "default")
	lines(t, out+problems, `
NAMESPACE POD CONTAINER CLAIM NODE DEVICE MEMORY COMPUTE HEALTH LIMITED BY
default PodGroup ended - ended a gpu-18-00 7.0Gi - ok -
default gang-0 main gang a gpu-18-00 7.0Gi - ok -
default gang-1 main gang a gpu-18-00 7.0Gi - ok -
default whole main whole a gpu-3b-00 14.6Gi 100% ok -`)
	// Nothing of a group's claim is missing from the reasons of a claim that waits.
	w.Pods, w.Claims = append(w.Pods, fleettest.Pod("new")), append(w.Claims, fleettest.Claim("new", "count=4"))
	out, problems = run(t, installed(t, w), "explain", "new", "-n", "default")
	for _, want := range []string{"claim default/gang of pod gang-0", "claim default/ended of PodGroup ended"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in %s%s", want, out, problems)
		}
	}
}

func TestFree(t *testing.T) {
	out, problems := run(t, installed(t, shared(t)), "free", "gpu.nvidia.com", "mps.nvidia.com", "--memory", "2Gi")
	lines(t, out+problems, `
CLASS MEMORY NODE CLAIMS
gpu.nvidia.com - a 2
mps.nvidia.com 2.0Gi a 17`)
}

// A class of others whose selector fails on our devices hides no other class.
func TestFreeWithAClassThatFails(t *testing.T) {
	w := shared(t)
	w.Classes = append(w.Classes, &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "a-fpga"}, Spec: resourceapi.DeviceClassSpec{
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "device.attributes['fpga.example.com'].speed == 1"}}},
	}})
	client := installed(t, w)
	out, problems := run(t, client, "free")
	if !strings.Contains(out, "gpu.nvidia.com") || strings.Contains(out, "a-fpga") || !strings.Contains(problems, "not known: class a-fpga: ") || strings.Contains(problems, "Error") {
		t.Errorf("got\n%s%s", out, problems)
	}
	if out, problems = run(t, client, "free", "a-fpga"); out != "" || !strings.Contains(problems, "Error: class a-fpga: ") {
		t.Errorf("got %s%s", out, problems)
	}
}

func TestUsage(t *testing.T) {
	w := fleettest.New(t, "a=t4 share.timeslice")
	w.Hold("a", "whole", "count=2")
	w.Hold("a", "half", "class=mps.nvidia.com memory=7Gi compute=50")
	w.Hold("a", "slot", "class=timeslice.nvidia.com")
	w.Claims[1].Namespace = "other"
	w.Claims[0].Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Now().Add(-90 * time.Minute)}
	out, problems := run(t, installed(t, w), "usage")
	lines(t, out+problems, `
NAMESPACE CLAIMS GPUS MEMORY COMPUTE SLOTS GPU HOURS
default 2 2.2 29.1Gi 200% 1 3.0
other 1 0.5 7.0Gi 50% 0 -
TOTAL 3 2.7 36.1Gi 250% 1 -

4 GPUs, 1.3 idle, 0.0Gi of memory stranded`)
	w.Claims[1].Status.Allocation.AllocationTimestamp = &metav1.Time{Time: time.Now().Add(-time.Hour)}
	parts := fleettest.New(t, "a=dgx-h100 mig")
	parts.Hold("a", "one", "class=mig-3g.40gb")
	parts.Hold("a", "two", "class=mig-3g.40gb")
	if out, _ := run(t, installed(t, parts), "usage"); !strings.HasSuffix(out, "Gi of memory and 1 compute slice stranded\n") {
		t.Errorf("%s", out)
	}
	if out, _ := run(t, installed(t, parts), "get", "-o", "json"); strings.Count(out, `"slicesStranded": 1`) != 1 {
		t.Errorf("json: %s", out)
	}
	out, problems = run(t, installed(t, w), "usage", "--sort-by", "gpus")
	lines(t, out+problems, `
NAMESPACE CLAIMS GPUS MEMORY COMPUTE SLOTS GPU HOURS
other 1 0.5 7.0Gi 50% 0 0.5
default 2 2.2 29.1Gi 200% 1 3.0
TOTAL 3 2.7 36.1Gi 250% 1 3.5

4 GPUs, 1.3 idle, 0.0Gi of memory stranded`)
	w.Slices = nil
	if out, _ := run(t, installed(t, w), "usage"); !strings.HasSuffix(out, "4 GPUs, 0.0 idle, 0.0Gi of memory stranded, 4 not published\n") {
		t.Errorf("without slices: %s", out)
	}
}

// wired returns a cluster with a DGX-1 whose agent counts links and knows PCIe switches.
func wired(t *testing.T, handler http.HandlerFunc) kubernetes.Interface {
	t.Helper()
	w := fleettest.New(t, "a=dgx1-v100 share", "b=t4 share")
	w.Hold("a", "held", "")
	w.Hold("b", "half", "memory=7Gi")
	w.Hold("b", "rest", "memory=6Gi")
	return drivenWorld(t, w, handler)
}

// wiring returns the facts of a DGX-1's agent about the connections of three GPUs.
const wiring = `{"gpus": [
  {"address": "0000:06:00.0", "links": {"0000:07:00.0": 1, "0000:85:00.0": 2}, "pcieSwitch": "0000:04:00.0"},
  {"address": "0000:07:00.0", "links": {"0000:06:00.0": 1}, "pcieSwitch": "0000:04:00.0"},
  {"address": "0000:0a:00.0", "links": {}, "pcieSwitch": "0000:08:00.0"},
  {"address": "0000:85:00.0", "links": {"0000:06:00.0": 2}, "pcieSwitch": "0000:83:00.0"},
  {"address": "0000:ff:00.0"}, {"address": "?"}
]}`

func TestTopo(t *testing.T) {
	client := wired(t, func(w http.ResponseWriter, r *http.Request) {
		if want := "/api/v1/namespaces/gpus/pods/agent-1:9000/proxy/v1/node"; r.URL.Path != want {
			t.Errorf("path %s, want %s", r.URL.Path, want)
		}
		_, _ = w.Write([]byte(wiring))
	})
	out, problems := run(t, client, "topo", "a")
	if problems != "" {
		t.Errorf("problems: %s", problems)
	}
	for row, want := range map[string]string{
		"gpu-06-00": "X NV1 PHB",
		"gpu-07-00": "NV1 X PHB",
		"gpu-0a-00": "PHB PHB X",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), row+" "+want+" ") {
			t.Errorf("%s: want %s\n%s", row, want, out)
		}
	}
	// Across the domains, which are the quads.
	if first, _, _ := strings.Cut(out[strings.Index(out, "\ngpu-06-00")+1:], "\n"); !strings.Contains(first, "NV2") {
		t.Errorf("got %s, want the two links to gpu-85-00", first)
	}
	if out, _ := run(t, client, "topo", "a", "-o", "json"); !strings.Contains(out, `"pcieSwitch": "0000:04:00.0"`) || !strings.Contains(out, `"NV2"`) {
		t.Errorf("json: %s", out)
	}
	out, _ = run(t, client, "topo", "b")
	lines(t, out, `
GPU gpu-18-00 gpu-3b-00 gpu-86-00 gpu-af-00 NUMA PCIE ROOT CLAIMS
gpu-18-00 X NODE NODE NODE 0 pci0000:17 default/half and 1 more
gpu-3b-00 NODE X NODE NODE 0 pci0000:3a -
gpu-86-00 NODE NODE X NODE 0 pci0000:85 -
gpu-af-00 NODE NODE NODE X 0 pci0000:ae -`)
	if _, problems := run(t, client, "topo", "c"); !strings.Contains(problems, "node c: not found") {
		t.Errorf("got %q", problems)
	}
}

// The published attributes show which GPUs are linked, and not by how many links.
func TestTopoWithoutAnAgent(t *testing.T) {
	client := wired(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	out, problems := run(t, client, "topo", "a")
	if row := strings.Join(strings.Fields(out), " "); !strings.Contains(row, "gpu-06-00 X NV NV NV ") {
		t.Errorf("got %s", out)
	}
	if want := "node a: links are not counted: permission denied: you have no right to get pods/proxy"; !strings.Contains(problems, want) {
		t.Errorf("got %q, want %q", problems, want)
	}
}

func TestExplain(t *testing.T) {
	w := shared(t)
	w.Hold("a", "others", "count=2")
	w.Pods = append(w.Pods, fleettest.Pod("new"))
	w.Claims = append(w.Claims, fleettest.Claim("new", "class=mps.nvidia.com memory=10Gi"))
	out, problems := run(t, server(w), "explain", "new", "-n", "default")
	lines(t, out+problems, `
pod default/new: Pending
nearest to fit is node a: other claims hold the devices
held by claim default/whole of pod whole
shared by claim default/half of pod half; 50% compute, 7748Mi memory left
held by claim default/others of pod others

What to do
wait until enough of these claims end: nothing is preempted for devices, whatever the priority of the pod

Node a: other claims hold the devices
claim new, request gpu: 0 of 1 device
gpu-18-00: held by claim default/whole of pod whole
gpu-3b-00: shared by claim default/half of pod half; 50% compute, 7748Mi memory left
gpu-86-00, gpu-af-00: held by claim default/others of pod others`)
}

func TestExplainOfASelector(t *testing.T) {
	w := shared(t)
	w.Claims = append(w.Claims, fleettest.Claim("new", "class=mps.nvidia.com memory=1Gi cel=device.attributes['gpu.nvidia.com'].architecture == 'Hopper'"))
	out, problems := run(t, server(w), "explain", "claim/new", "-n", "default")
	lines(t, out+problems, `
claim default/new
nearest to fit is node a: no device meets the selectors

What to do
change the selector: attribute gpu.nvidia.com/architecture is "Turing" (4 devices)

Node a: no device meets the selectors
claim new, request gpu: 0 of 1 device
gpu-18-00: the selector does not select it: architecture is Turing; held by claim default/whole of pod whole
gpu-3b-00, gpu-86-00, gpu-af-00: the selector does not select it: architecture is Turing`)
}

// Attributes and capacities of the same name, also of another domain, differ.
func TestExplainPrintsOnlyValuesThatTheSelectorReads(t *testing.T) {
	const amount, speed = `capacity gpu.nvidia.com/memory is "14916Mi" (4 devices)`, `attribute gpu.nvidia.com/memory is "fast" (4 devices)`
	w := fleettest.New(t, "a=t4 share")
	for i := range w.Slices[0].Spec.Devices {
		attributes := w.Slices[0].Spec.Devices[i].Attributes
		attributes["memory"], attributes["example.com/memory"] = resourceapi.DeviceAttribute{StringValue: ptr.To("fast")}, resourceapi.DeviceAttribute{StringValue: ptr.To("red")}
	}
	for expression, want := range map[string]string{
		"device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0":                                                         ": " + amount,
		"device.attributes['gpu.nvidia.com'].memory == 'slow'":                                                                              ": " + speed,
		"device.attributes['gpu.nvidia.com'].memory == 'slow' || device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0": ": " + speed + "; " + amount,
		"has(device.capacity['example.com'].memory)":                                                                                        "",
	} {
		w.Claims = []*resourceapi.ResourceClaim{fleettest.Claim("new", "cel="+expression)}
		if out, problems := run(t, server(w), "explain", "claim/new", "-n", "default"); !strings.Contains(out, "  change the selector"+want+"\n") {
			t.Errorf("%s: no %q in %s%s", expression, want, out, problems)
		}
	}
}

func TestExplainOfANameThatNoDeviceHas(t *testing.T) {
	for expression, want := range map[string]string{
		"device.attributes['gpu.nvidia.com'].eccEnabled":                           "no node publishes it; attributes and offer of the chart say what nodes publish: https://github.com/gpu-dra/gpu-dra-driver/blob/main/docs/user/attributes.md#attributes",
		"device.attributes['gpu.nvidia.com'].?architectur.orValue('') == 'Turing'": "did you mean device.attributes['gpu.nvidia.com'].architecture?",
	} {
		w := shared(t)
		w.Claims = append(w.Claims, fleettest.Claim("new", "cel="+expression))
		out, problems := run(t, server(w), "explain", "claim/new", "-n", "default")
		if !strings.Contains(out, "\nWhat to do\n") || !strings.Contains(out, "; "+want+"\n") {
			t.Errorf("%s: want %q in %s%s", expression, want, out, problems)
		}
	}
}

// Templates of any namespace can end the scheduling of their pods.
func TestDoctorReadsTemplates(t *testing.T) {
	w := shared(t)
	claim := fleettest.Claim("mine", "cel=device.attributes['gpu.nvidia.com'].colour == 'red'")
	client := server(w)
	require.NoError(t, client.Tracker().Add(&resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "mine"}, Spec: resourceapi.ResourceClaimTemplateSpec{Spec: claim.Spec},
	}))
	out, _ := run(t, client, "doctor")
	if !strings.Contains(out, "template team/mine") || !strings.Contains(out, "which no device has") && !strings.Contains(out, "4 devices cannot answer") {
		t.Errorf("doctor printed %s", out)
	}
}

func TestExplainOfAPodWithoutClaims(t *testing.T) {
	for resource, want := range map[string]string{
		"nvidia.com/gpu": "request legacy/nvidia.com/gpu: 2 of 5 devices",
		"deviceclass.resource.kubernetes.io/gpu.nvidia.com": "request legacy/deviceclass.resource.kubernetes.io/gpu.nvidia.com: 2 of 5 devices",
		"example.com/other": "the pod has no claims",
	} {
		w := shared(t)
		pod := fleettest.Pod("old")
		pod.Spec.ResourceClaims = nil
		pod.Spec.Containers = []corev1.Container{{Name: "legacy", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceName(resource): k8sresource.MustParse("5")}}}}
		w.Pods = append(w.Pods, pod)
		if out, problems := run(t, server(w), "explain", "old", "-n", "default"); problems != "" || !strings.Contains(out, want) {
			t.Errorf("%s: got %s%s, want %q", resource, out, problems, want)
		}
	}
}

func TestExplainOfAClaimWithDevices(t *testing.T) {
	out, problems := run(t, server(shared(t)), "explain", "half", "-n", "default")
	lines(t, out+problems, `
pod default/half: Pending

Facts
claim half has gpu-3b-00 of node a`)
}

// The kubelet calls the other driver, so that the agent writes nothing about the claim.
func TestExplainOfAPodOnANodeWithTwoDrivers(t *testing.T) {
	const want = "remove one of the drivers of the name gpu.nvidia.com from node a"
	for name, c := range map[string]struct {
		change func(w *fleettest.World, pod *corev1.Pod)
		says   bool
	}{
		"one driver":              {func(*fleettest.World, *corev1.Pod) {}, false},
		"a device of the other's": {func(w *fleettest.World, _ *corev1.Pod) { w.Slices[0].Spec.Devices[0].Name = "gpu-0" }, true},
		"an allocation of the other's": {func(w *fleettest.World, _ *corev1.Pod) {
			w.Claims[1].Status.Allocation.Devices.Results[0].Device = "gpu-0"
		}, true},
		"a device of another driver": {func(w *fleettest.World, _ *corev1.Pod) {
			w.Slices[0].Spec.Devices[0].Name, w.Slices[0].Spec.Driver = "gpu-0", "nic.example.com"
		}, false},
		"a pod that runs": {func(w *fleettest.World, pod *corev1.Pod) {
			w.Slices[0].Spec.Devices[0].Name, pod.Status.Phase = "gpu-0", corev1.PodRunning
		}, false},
		"a pod on another node": {func(w *fleettest.World, pod *corev1.Pod) {
			w.Slices[0].Spec.Devices[0].Name, pod.Spec.NodeName = "gpu-0", "b"
		}, false},
	} {
		w := shared(t)
		pod := w.Pods[1]
		pod.Spec.NodeName, pod.Status.Phase = "a", corev1.PodPending
		c.change(w, pod)
		if out, problems := run(t, server(w), "explain", "half", "-n", "default"); strings.Contains(out, want) != c.says {
			t.Errorf("%s: got %s%s, want the advice: %t", name, out, problems, c.says)
		}
	}
}

func TestExplainOfNodesThatExcludeThePod(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share", "c=t4 share")
	w.Hold("c", "others", "count=4")
	w.Pods = append(w.Pods, fleettest.Pod("new"))
	w.Claims = append(w.Claims, fleettest.Claim("new", ""))
	for _, node := range w.Nodes[:2] {
		node.Spec.Unschedulable = true
	}
	out, problems := run(t, server(w), "explain", "new", "-n", "default", "--nodes", "0")
	lines(t, out+problems, `
pod default/new: Pending
nearest to fit is node c: other claims hold the devices

What to do
wait until enough of these claims end: nothing is preempted for devices, whatever the priority of the pod

1 further node does not fit either (--nodes)

Not on a, b: it is cordoned`)

	w.Nodes[2].Spec.Unschedulable = true
	out, problems = run(t, server(w), "explain", "new", "-n", "default")
	lines(t, out+problems, `
pod default/new: Pending
no node admits the pod, for reasons apart from devices

What to do
if the node may be used again, its administrator ends the cordon: kubectl uncordon a

Not on a, b, c: it is cordoned`)
}

func TestExplainOfAClaimThatTheAPIServerRefuses(t *testing.T) {
	for message, want := range map[string]string{
		`PodResourceClaim gpu: failed to create ResourceClaim: resourceclaims "new-gpu-" is forbidden: exceeded quota: gpus, requested: gpu.nvidia.com.deviceclass.resource.k8s.io/devices=1, used: 2, limited: 2`: "have an administrator raise the quota",
		`resourceclaimtemplate.resource.k8s.io "zz" not found`: "kubectl get resourceclaimtemplates --namespace default",
		`PodResourceClaim gpu: resourceclaims "new-gpu-" is forbidden: ValidatingAdmissionPolicy 'gpu-dra-driver-requests' with binding 'gpu-dra-driver-requests' denied request: name a capacity`: "as the policy in the event requires",
	} {
		w := shared(t)
		pod := fleettest.Pod("new")
		pod.Spec.ResourceClaims[0].ResourceClaimName, pod.Spec.ResourceClaims[0].ResourceClaimTemplateName = nil, ptr.To("large")
		w.Pods = append(w.Pods, pod)
		client := server(w)
		event(t, client, "refused", "FailedResourceClaimCreation", message)
		out, problems := run(t, client, "explain", "new", "-n", "default")
		if problems != "" || !strings.Contains(out, strings.TrimPrefix(message, "PodResourceClaim gpu: ")) || !strings.Contains(out, want) {
			t.Errorf("got %s%s, want %q", out, problems, want)
		}
	}
}

// A pod that hangs in ContainerCreating or Terminating has a node and claims.
func TestExplainOfAPodThatDoesNotStart(t *testing.T) {
	w := shared(t)
	pod := w.Pods[1]
	pod.Spec.NodeName = "a"
	deleted := metav1.NewTime(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	pod.DeletionTimestamp, pod.Finalizers = &deleted, []string{"example.com/wait"}
	client := server(w)
	for i, message := range []string{"old", "the driver is not loaded", "the driver is not loaded"} {
		event := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)}, Type: corev1.EventTypeWarning,
			Reason: "FailedPrepareDynamicResources", Message: message, LastTimestamp: metav1.NewTime(deleted.Add(time.Duration(i) * time.Minute)),
		}
		require.NoError(t, client.Tracker().Add(event))
	}
	out, problems := run(t, client, "explain", "half", "-n", "default")
	lines(t, regexp.MustCompile(`, \S+ ago`).ReplaceAllString(out+problems, ", AGO ago"), `
pod default/half: Terminating

Facts
the pod is being deleted and has time to end until 2026-11-22T12:00:00Z; it stays until its containers have ended and the agent of node a has unprepared its claims
whether the agent of node a runs is not known: no DaemonSet of the driver gpu.nvidia.com is found; --driver-namespace names its namespace
claim half has gpu-3b-00 of node a
event FailedPrepareDynamicResources, AGO ago: the driver is not loaded
event FailedPrepareDynamicResources, AGO ago: old`)

	forbid(client, "events", false)
	if out, problems := run(t, client, "explain", "half", "-n", "default"); problems != "" || !strings.Contains(out, "no right to list events") {
		t.Errorf("got %s%s", out, problems)
	}
}

// A large cluster has 5,000 pods with shares, one of which does not fit.
func TestALargeCluster(t *testing.T) {
	w := fleettest.New(t, "node-0=t4 share")
	for i := range 4 {
		w.Hold("node-0", fmt.Sprintf("pod-%d", i), "class=mps.nvidia.com memory=9Gi")
	}
	w.Hold("node-0", "small", "class=mps.nvidia.com memory=2Gi")
	w.Repeat(1000)
	w.Pods, w.Claims = append(w.Pods, fleettest.Pod("new")), append(w.Claims, fleettest.Claim("new", "class=mps.nvidia.com memory=9Gi"))
	client := installed(t, w)
	for want, args := range map[string][]string{
		"\nnode-999 gpu-18-00": {"get"},
		"\ndefault small-node-999 main small-node-999 node-999 ": {"who", "-A"},
		"\ndefault 5000 2608.7 38000.0Gi":                        {"usage"},
		"997 further nodes do not fit either":                    {"explain", "new", "-n", "default"},
		"\n0 of 1 pod fit\n":                                     {"plan", "-n", "default", "-f", manifest(t, template+podsOf("Pod", ""))},
	} {
		out, problems := run(t, client, args...)
		var fields strings.Builder
		for line := range strings.Lines(out) {
			fields.WriteString("\n" + strings.Join(strings.Fields(line), " "))
		}
		if problems != "" || !strings.Contains(fields.String()+"\n", want) {
			t.Errorf("%v: no %q in %.2000s%s", args, want, fields.String(), problems)
		}
	}
}

// forbid has the API server refuse lists of a resource: of all namespaces, or of any.
func forbid(client *fake.Clientset, resource string, everywhereOnly bool) {
	client.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		if everywhereOnly && action.GetNamespace() != "" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
	})
}

func TestRightsThatTheUserLacks(t *testing.T) {
	for name, tc := range map[string]struct {
		resource       string
		everywhereOnly bool
		command        string
		out, problem   string
	}{
		"pods":                       {"pods", false, "who", "default - - half a gpu-3b-00", "You have no right to list pods: ask an administrator for the ClusterRole gpu-dra-driver-viewer."},
		"pods of other namespaces":   {"pods", true, "who", "default half main half a gpu-3b-00", "list pods of all namespaces, only of default"},
		"claims":                     {"resourceclaims", false, "get", "", "Error: list resourceclaims.resource.k8s.io: permission denied"},
		"claims of other namespaces": {"resourceclaims", true, "get", "gpu-3b-00 Tesla T4 shared", "devices that seem free may be in use"},
		"slices":                     {"resourceslices", false, "get", "", "Error: list resourceslices.resource.k8s.io: permission denied"},
		"classes":                    {"deviceclasses", false, "free", "", "Error: list deviceclasses.resource.k8s.io: permission denied"},
		"classes, which get ignores": {"deviceclasses", false, "get", "gpu-3b-00 Tesla T4 shared", "You have no right to list deviceclasses.resource.k8s.io: ask an administrator for the ClusterRole gpu-dra-driver-devices."},
		"nodes":                      {"nodes", false, "get", "gpu-3b-00 Tesla T4 shared", "You have no right to list nodes: ask an administrator for the ClusterRole gpu-dra-driver-viewer."},
		"taint rules":                {"devicetaintrules", false, "free", "mps.nvidia.com 10.0Gi a 2", "You have no right to list devicetaintrules.resource.k8s.io: ask an administrator for the ClusterRole gpu-dra-driver-devices."},
	} {
		t.Run(name, func(t *testing.T) {
			client := server(shared(t))
			forbid(client, tc.resource, tc.everywhereOnly)
			out, problems := run(t, client, tc.command, "-n", "default")
			out = strings.Join(strings.Fields(out), " ")
			if !strings.Contains(out, tc.out) || tc.out == "" && out != "" || !strings.Contains(problems, tc.problem) {
				t.Errorf("got %q, %q", out, problems)
			}
		})
	}
}

func TestAnAPIServerWithoutDRA(t *testing.T) {
	client := server(shared(t))
	client.PrependReactor("list", "resourceslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "resourceslices"}, "")
	})
	if out, problems := run(t, client); out != "" || !strings.Contains(problems, "needs Kubernetes 1.34") {
		t.Errorf("got %q, %q", out, problems)
	}
}

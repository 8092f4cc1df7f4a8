// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// rulesOf returns the names of the rules of a cluster with their reasons.
func rulesOf(t *testing.T, client kubernetes.Interface) map[string]string {
	t.Helper()
	list, err := client.ResourceV1().DeviceTaintRules().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	rules := map[string]string{}
	for _, rule := range list.Items {
		rules[rule.Name] = rule.Annotations["gpu.nvidia.com/cordon-reason"]
	}
	return rules
}

// writes returns the requests of a client that change objects.
func writes(client *fake.Clientset) []string {
	var all []string
	for _, action := range client.Actions() {
		if !slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
			all = append(all, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return all
}

func TestCordonTakesAGPUOutOfUseUntilUncordon(t *testing.T) {
	client := server(shared(t))
	out, problems := run(t, client, "cordon", "a/gpu-3b-00", "--reason", "XID 79, ticket 4711")
	lines(t, out+problems, `
annotate node a: gpu.nvidia.com/cordoned=gpu-3b-00
cordon a/gpu-3b-00: taint gpu.nvidia.com/cordoned on gpu-3b-00, gpu-3b-00-seat, gpu-3b-00-ts
a/gpu-3b-00 is cordoned (DeviceTaintRules: 3 created, 0 kept)
claims that have it keep it (1): kubectl gpu drain a/gpu-3b-00 evicts their pods`)
	want := map[string]string{"gpu-cordon.gpu-3b-00.a": "XID 79, ticket 4711", "gpu-cordon.gpu-3b-00-seat.a": "XID 79, ticket 4711", "gpu-cordon.gpu-3b-00-ts.a": "XID 79, ticket 4711"}
	require.Same(t, "rules", want, rulesOf(t, client))
	out, _ = run(t, client)
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); slices.Contains(words, "gpu-3b-00") != slices.Contains(words, "cordoned") {
			t.Errorf("get printed %s", line)
		}
	}
	// Two shares of 7 GiB fit on each of the two free GPUs, and one on the cordoned one.
	free := func(want string) {
		t.Helper()
		out, _ := run(t, client, "free", "mps.nvidia.com", "--memory", "7Gi")
		if !strings.HasSuffix(strings.TrimSpace(out), " a      "+want) {
			t.Errorf("free printed %s, want %s", out, want)
		}
	}
	free("4")

	out, problems = run(t, client, "uncordon", "a/gpu-3b-00")
	lines(t, out+problems, `
annotate node a: gpu.nvidia.com/cordoned=
uncordon a/gpu-3b-00: remove the taint gpu.nvidia.com/cordoned of gpu-3b-00-seat, gpu-3b-00-ts, gpu-3b-00
a/gpu-3b-00 is uncordoned (DeviceTaintRules: 3 deleted)`)
	if left := rulesOf(t, client); len(left) > 0 {
		t.Errorf("rules are left: %v", left)
	}
	free("5")
	out, problems = run(t, client, "uncordon", "a/gpu-3b-00")
	lines(t, out+problems, "a/gpu-3b-00 is not cordoned")
}

func TestCordonCoversMIGDevices(t *testing.T) {
	client := server(fleettest.New(t, "a=dgx-h100 share.mig"))
	out, problems := run(t, client, "cordon", "a/gpu-1b-00")
	if problems != "" || !strings.Contains(out, " and ") {
		t.Errorf("got %s%s", out, problems)
	}
	rules := rulesOf(t, client)
	for _, device := range []string{"gpu-1b-00", "gpu-1b-00-mig-1g-10gb-0", "gpu-1b-00-mig-1g-10gb-6", "gpu-1b-00-mig-7g-80gb-0"} {
		if _, ok := rules["gpu-cordon."+device+".a"]; !ok {
			t.Errorf("no rule for %s", device)
		}
	}
	for name := range rules {
		if !strings.HasPrefix(name, "gpu-cordon.gpu-1b-00") {
			t.Errorf("%s is of another GPU", name)
		}
	}
	// Seven GPUs are left, also as MIG devices.
	out, _ = run(t, client, "free", "gpu.nvidia.com", "mig-7g.80gb")
	lines(t, out, "CLASS MEMORY NODE CLAIMS\ngpu.nvidia.com - a 7\nmig-7g.80gb - a 7")
}

// The rules cover the devices of today, and the agent those of a later layout.
func TestAGPUIsCordonedInPartUntilItsAgentCoversNewDevices(t *testing.T) {
	client := server(fleettest.New(t, "a=dgx-h100 share.mig"))
	run(t, client, "cordon", "a/gpu-43-00")
	run(t, client, "cordon", "a/gpu-1b-00")
	node, err := client.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
	require.NoError(t, err)
	if got := node.Annotations["gpu.nvidia.com/cordoned"]; got != "gpu-1b-00,gpu-43-00" {
		t.Errorf("the annotation is %q", got)
	}
	health := func(want string) {
		t.Helper()
		out, _ := run(t, client)
		for line := range strings.Lines(out) {
			if strings.Contains(line, "gpu-1b-00") && !strings.HasSuffix(strings.TrimSpace(line), " "+want) {
				t.Errorf("get printed %s, want %s", line, want)
			}
		}
	}
	health("cordoned")
	require.NoError(t, client.ResourceV1().DeviceTaintRules().Delete(t.Context(), "gpu-cordon.gpu-1b-00-mig-1g-10gb-0.a", metav1.DeleteOptions{}))
	health("cordoned in part")
	// The rules are gone, and the annotation is left.
	for rule := range rulesOf(t, client) {
		require.NoError(t, client.ResourceV1().DeviceTaintRules().Delete(t.Context(), rule, metav1.DeleteOptions{}))
	}
	out, problems := run(t, client, "uncordon", "a/gpu-1b-00")
	lines(t, out+problems, `
annotate node a: gpu.nvidia.com/cordoned=gpu-43-00
a/gpu-1b-00 is uncordoned (DeviceTaintRules: 0 deleted)`)
}

func TestCordonAgainCreatesOnlyMissingRules(t *testing.T) {
	client := server(shared(t))
	run(t, client, "cordon", "a/gpu-86-00", "--reason", "first")
	out, problems := run(t, client, "cordon", "a/gpu-86-00")
	lines(t, out+problems, "a/gpu-86-00 is cordoned already (DeviceTaintRules: 3)")
	require.NoError(t, client.ResourceV1().DeviceTaintRules().Delete(t.Context(), "gpu-cordon.gpu-86-00-ts.a", metav1.DeleteOptions{}))
	out, problems = run(t, client, "cordon", "a/gpu-86-00", "--reason", "second")
	if problems != "" || !strings.Contains(out, "(DeviceTaintRules: 1 created, 2 kept)") {
		t.Errorf("got %s%s", out, problems)
	}
}

// Another run is creating the rules.
func TestCordonByUUIDKeepsRulesThatExistMeanwhile(t *testing.T) {
	client := server(shared(t))
	uuid, _ := run(t, client, "get", "-o", "jsonpath={.items[0].uuid}")
	client.PrependReactor("create", "devicetaintrules", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return false, nil, client.Tracker().Add(action.(clienttesting.CreateAction).GetObject())
	})
	if out, problems := run(t, client, "cordon", "a/"+uuid); !strings.HasPrefix(uuid, "GPU-") || problems != "" || !strings.Contains(out, "a/gpu-18-00 is cordoned") {
		t.Errorf("%s: got %s%s", uuid, out, problems)
	}
}

// Rules of other GPUs and nodes remain, and an administrator's own rules.
func TestUncordonLeavesOtherRulesAlone(t *testing.T) {
	w := fleettest.New(t, "a=t4 share", "b=t4 share")
	own := &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"gpu.nvidia.com/cordon": "gpu-18-00"}},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: ptr.To("gpu.nvidia.com"), Pool: ptr.To("a"), Device: ptr.To("gpu-18-00")},
			Taint:          resourceapi.DeviceTaint{Key: "example.com/repair", Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
	w.TaintRules = append(w.TaintRules, own)
	client := server(w)
	run(t, client, "cordon", "a/gpu-18-00")
	run(t, client, "cordon", "a/gpu-3b-00")
	run(t, client, "cordon", "b/gpu-18-00")
	if _, problems := run(t, client, "uncordon", "a/gpu-18-00"); problems != "" {
		t.Error(problems)
	}
	rules := rulesOf(t, client)
	if _, kept := rules["mine"]; len(rules) != 7 || !kept {
		t.Errorf("rules are left: %v", rules)
	}
}

func TestUncordonOfAGPUThatIsGone(t *testing.T) {
	client := server(shared(t))
	run(t, client, "cordon", "a/gpu-18-00")
	published, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, slice := range published.Items {
		require.NoError(t, client.ResourceV1().ResourceSlices().Delete(t.Context(), slice.Name, metav1.DeleteOptions{}))
	}
	out, problems := run(t, client, "uncordon", "a/gpu-18-00")
	if problems != "" || len(rulesOf(t, client)) != 0 {
		t.Errorf("got %s%s", out, problems)
	}
}

func TestDryRunsOfVerbsChangeNothing(t *testing.T) {
	w := shared(t)
	w.Taint("gpu-18-00", "xid-79")
	client := server(w)
	run(t, client, "cordon", "a/gpu-86-00")
	client.ClearActions()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"cordon", "a/gpu-3b-00", "--dry-run"}, "cordon a/gpu-3b-00: taint gpu.nvidia.com/cordoned on gpu-3b-00, gpu-3b-00-seat, gpu-3b-00-ts (dry run)"},
		{[]string{"uncordon", "a/gpu-86-00", "--dry-run=client"}, "(dry run)"},
		{[]string{"drain", "a/gpu-3b-00", "--dry-run", "--force"}, "evict pod default/half: it has the claim half (dry run)"},
		{[]string{"repaired", "a/gpu-18-00", "--dry-run"}, "annotate node a: gpu.nvidia.com/repaired=gpu-18-00@"},
	} {
		out, problems := run(t, client, tc.args...)
		if problems != "" || !strings.Contains(out, tc.want) {
			t.Errorf("%v: got %s%s, want %q", tc.args, out, problems, tc.want)
		}
	}
	if all := writes(client); len(all) > 0 {
		t.Errorf("dry runs sent %v", all)
	}
}

func TestVerbsRefuseGPUsThatDoNotExist(t *testing.T) {
	client := server(shared(t))
	client.ClearActions()
	for _, verb := range []string{"cordon", "uncordon", "drain", "repaired"} {
		for name, want := range map[string]string{
			"gpu-18-00":      "want NODE/GPU, such as node-1/gpu-1b-00",
			"b/gpu-18-00":    "node b: not found: it publishes no GPU; nodes with GPUs: a",
			"a/gpu-19-00":    "a/gpu-19-00: not found: GPUs of node a: gpu-18-00, gpu-3b-00, gpu-86-00, gpu-af-00",
			"a/gpu-18-00-ts": "a/gpu-18-00-ts: invalid: it is a part of a GPU: name the GPU, a/gpu-18-00",
		} {
			if _, problems := run(t, client, verb, name); !strings.Contains(problems, want) {
				t.Errorf("%s %s: got %q, want %q", verb, name, problems, want)
			}
		}
	}
	for want, args := range map[string][]string{
		"one line without control characters": {"cordon", "a/gpu-18-00", "--reason", "evil\x1b[2J"},
		"at most 256 characters":              {"cordon", "a/gpu-18-00", "--reason", strings.Repeat("x", 257)},
		"want none or client":                 {"cordon", "a/gpu-18-00", "--dry-run=server"},
		"cordon prints its steps only":        {"cordon", "a/gpu-18-00", "--output", "json"},
	} {
		if _, problems := run(t, client, args...); !strings.Contains(problems, want) {
			t.Errorf("%q: got %q, want %q", args, problems, want)
		}
	}
	if all := writes(client); len(all) > 0 {
		t.Errorf("refused commands sent %v", all)
	}
}

func TestVerbsNameTheRoleForAMissingRight(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, resource string
		args           []string
		want           string
	}{
		"list rules":   {"list", "devicetaintrules", []string{"cordon", "a/gpu-3b-00"}, "no right to list devicetaintrules.resource.k8s.io"},
		"create rules": {"create", "devicetaintrules", []string{"cordon", "a/gpu-3b-00"}, "no right to create devicetaintrules.resource.k8s.io"},
		"delete rules": {"delete", "devicetaintrules", []string{"uncordon", "a/gpu-18-00"}, "no right to delete devicetaintrules.resource.k8s.io"},
		"list pods":    {"list", "pods", []string{"drain", "a/gpu-3b-00"}, "no right to list pods"},
		"evict":        {"create", "pods/eviction", []string{"drain", "a/gpu-3b-00", "--force"}, "no right to create pods/eviction"},
		"patch nodes":  {"patch", "nodes", []string{"repaired", "a/gpu-86-00"}, "no right to get and patch nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			w := shared(t)
			w.Taint("gpu-86-00", "xid-79")
			client := server(w)
			run(t, client, "cordon", "a/gpu-18-00")
			resource, subresource, _ := strings.Cut(tc.resource, "/")
			client.PrependReactor(tc.verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
				return action.GetSubresource() == subresource, nil, apierrors.NewForbidden(schema.GroupResource{Resource: tc.resource}, "x", nil)
			})
			_, problems := run(t, client, tc.args...)
			if !strings.Contains(problems, tc.want) || strings.Count(problems, "ClusterRole gpu-dra-driver-operator") != 1 {
				t.Errorf("got %q, want %q and the role", problems, tc.want)
			}
		})
	}
}

func TestCordonOnAnOldAPIServer(t *testing.T) {
	client := server(shared(t))
	for _, verb := range []string{"list", "create"} {
		client.PrependReactor(verb, "devicetaintrules", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "devicetaintrules"}, "")
		})
	}
	if _, problems := run(t, client, "cordon", "a/gpu-3b-00"); !strings.Contains(problems, "needs Kubernetes 1.37") {
		t.Errorf("got %q", problems)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// faultVariable makes the test binary the driver under test.
const faultVariable = "DRA_SANITY_TEST_FAULT"

func TestMain(m *testing.M) {
	if fault, ok := os.LookupEnv(faultVariable); ok {
		if err := runTestDriver(context.Background(), fault); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// quick is enough for the test driver, whose faults are there at once.
func quick() waits {
	return waits{call: 10 * time.Second, again: 10 * time.Second, stable: 3 * time.Second, outage: time.Second, begin: time.Second, end: 10 * time.Second, files: time.Second}
}

// command returns a command that starts the test driver with a fault.
func command(fault string) string {
	return fmt.Sprintf("exec env %s='%s' %s", faultVariable, fault, os.Args[0])
}

// sanity runs scenarios on a driver with a fault, and returns the results by their ids.
func sanity(t *testing.T, fault, scenarios string, more ...string) map[string]result {
	t.Helper()
	var out bytes.Buffer
	command := command(fault)
	if fault == "ignores SIGTERM" || fault == "leaks files" {
		// A command need not exec the driver.
		command = strings.TrimPrefix(command, "exec ") + "; true"
	}
	args := []string{"--driver-name", testDriverName, "--exec", command, "--claims", "30", "--run", scenarios, "--output", "json"}
	failed, err := run(t.Context(), append(args, more...), &out, quick())
	if err != nil {
		t.Fatal(err)
	}
	var report struct{ Results []result }
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	results, failures := map[string]result{}, 0
	for _, r := range report.Results {
		results[r.ID] = r
		if r.Verdict == failure {
			failures++
		}
	}
	if failed != (failures > 0) {
		t.Errorf("failed is %t with %d failures", failed, failures)
	}
	return results
}

func TestADriverWithoutFaultsPasses(t *testing.T) {
	t.Parallel()
	// The helper of Kubernetes restores a slice after half a minute, beside the other scenarios.
	const slow = "slices-restored"
	var others []string
	for _, s := range scenarios {
		if s.id != slow {
			others = append(others, s.id)
		}
	}
	for _, ids := range [][]string{{slow}, others} {
		t.Run(ids[0], func(t *testing.T) {
			t.Parallel()
			results := sanity(t, "", "^("+strings.Join(ids, "|")+")$")
			for _, id := range ids {
				want := success
				if id == "health" {
					want = skip // the driver has no stream
				}
				if r := results[id]; r.Verdict != want {
					t.Errorf("%s: %s: %s", id, r.Verdict, r.Message)
				}
			}
		})
	}
}

func TestEachFaultIsFound(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for fault, ids := range map[string][]string{
		"ends at its start":                     {"register", "prepare-missing"},
		"starts once":                           {"register-after-kill"},
		"has a long name":                       {"slices-valid"},
		"publishes a clock":                     {"slices-stable"},
		"ends without its slices":               {"slices-restored", "slices-api-away"},
		"withdraws its devices at its start":    {"slices-after-kill"},
		"withdraws its devices after an outage": {"slices-api-away"},
		"has one socket, late":                  {"update"},
		"writes no spec":                        {"prepare"},
		"lists no devices":                      {"prepare"},
		"prepares one device":                   {"prepare-two-devices"},
		"prepares the first claim of a call":    {"prepare-batch"},
		"unprepares the first claim of a call":  {"prepare-batch"},
		"removes any name":                      {"prepare-bad-names"},
		"records by name":                       {"prepare-new-uid"},
		"accepts bad claims":                    {"prepare-missing", "prepare-unallocated", "prepare-new-uid"},
		"ends at a bad claim":                   {"prepare-api-away", "prepare-bad-names"},
		"ignores parameters":                    {"prepare-bad-config"},
		"prepares devices of others":            {"prepare-other-driver"},
		"prepares a held device":                {"prepare-held"},
		"leaves records":                        {"prepare-again"},
		"forgets prepared claims":               {"prepare-twice", "prepare-at-once", "kill-prepared", "update"},
		"leaves a lock":                         {"kill-within"},
		"records after the spec":                {"kill-within"},
		"writes a spec once":                    {"cdi-emptied", "cdi-emptied-killed"},
		"leaves specs":                          {"kill-unprepare", "unprepare", "unprepare-deleted"},
		"leaves specs under a hash":             {"unprepare", "many"},
		"unprepares only what it knows":         {"register-again", "unprepare-twice", "unprepare-unknown"},
		"empties the folder":                    {"unprepare-one-of-two"},
		"reports the health of others":          {"health"},
		"reports no health":                     {"health"},
		"describes other devices":               {"metadata"},
		"leaves metadata":                       {"metadata"},
		"ignores SIGTERM":                       {"terminate"},
		"leaks files":                           {"many"},
	} {
		for _, id := range ids {
			found[id] = true
		}
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			results := sanity(t, fault, "^("+strings.Join(ids, "|")+")$")
			for _, id := range ids {
				// The clean-up after a scenario also fails if the driver has ended.
				if r := results[id]; r.Verdict != failure || strings.HasPrefix(r.Message, "after the scenario: ") {
					t.Errorf("%s is %s: %s", id, r.Verdict, r.Message)
				}
			}
		})
	}
	for _, s := range scenarios {
		if !found[s.id] {
			t.Errorf("no fault fails %s", s.id)
		}
	}
}

func TestWhatTheKubeletBearsPasses(t *testing.T) {
	t.Parallel()
	for fault, ids := range map[string][]string{
		"asks for time":                   {"prepare", "kill-within"},
		"is unavailable":                  {"prepare-api-away"},
		"has a health stream of v1alpha1": {"health"},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			for id, r := range sanity(t, fault, "^("+strings.Join(ids, "|")+")$") {
				if r.Verdict != success {
					t.Errorf("%s is %s: %s", id, r.Verdict, r.Message)
				}
			}
		})
	}
}

func TestADriverThatUsesNRI(t *testing.T) {
	t.Parallel()
	results := sanity(t, "lists no devices", "^(prepare-twice|cdi-emptied|unprepare)$", "--nri")
	for id, want := range map[string]string{"prepare-twice": success, "cdi-emptied": skip, "unprepare": success} {
		if r := results[id]; r.Verdict != want {
			t.Errorf("%s is %s: %s", id, r.Verdict, r.Message)
		}
	}
}

func TestTooFewDevicesAreNoVerdict(t *testing.T) {
	t.Parallel()
	if r := sanity(t, "has one device", "^prepare-two-devices$")["prepare-two-devices"]; r.Verdict != skip {
		t.Errorf("got %s: %s", r.Verdict, r.Message)
	}
}

func TestADriverWithoutMetadataIsNoVerdict(t *testing.T) {
	t.Parallel()
	if r := sanity(t, "has no metadata", "^metadata$")["metadata"]; r.Verdict != skip {
		t.Errorf("got %s: %s", r.Verdict, r.Message)
	}
}

func TestADriverWithoutDevicesFails(t *testing.T) {
	t.Parallel()
	if r := sanity(t, "has no device", "^prepare$")["prepare"]; r.Verdict != failure || !strings.Contains(r.Message, "no device") {
		t.Errorf("got %s: %s", r.Verdict, r.Message)
	}
}

func TestTheEndOfAScenarioLeavesNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	n := &node{name: "sanity-node", driverName: testDriverName, command: command(""), waits: quick()}
	end, err := n.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	skipped := scenario{id: "skipped", run: func(ctx context.Context, n *node) error {
		claim, err := n.allocate(ctx, "skipped", nil, "")
		if err == nil {
			err = os.WriteFile(filepath.Join(n.cdi, string(claim.UID)), nil, 0o600)
		}
		return errors.Join(err, errSkipped)
	}}
	interrupted := scenario{id: "interrupted", run: func(ctx context.Context, n *node) error {
		_, _, err := n.preparedClaim(ctx, "interrupted")
		cancel()
		return errors.Join(err, ctx.Err())
	}}
	results := n.runAll(ctx, []scenario{skipped, interrupted, interrupted})
	if len(results) != 2 || results[0].Verdict != failure || results[1].Message != context.Canceled.Error() {
		t.Errorf("got %+v", results)
	}
	claims, err := n.client.ResourceV1().ResourceClaims("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(claims.Items) > 0 {
		t.Errorf("claims %v are left: %v", claims.Items, err)
	}
	pods, err := n.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods %v are left: %v", pods.Items, err)
	}
}

func TestAFolderThatTheUserNamesStays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "of-the-user")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t.Context(), []string{"--driver-name", testDriverName, "--exec", "false", "--kubelet-dir", dir, "--cdi-dir", dir, "--run", "^register$"}, io.Discard, quick()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestReports(t *testing.T) {
	results := []result{
		{ID: "a", Want: "works", Source: "s", Verdict: success, Seconds: 1},
		{ID: "b", Want: "fails", Source: "s", Verdict: failure, Message: printable("it <did> not\n::error::\x1b[31m" + strings.Repeat("x", 9000))},
		{ID: "c", Want: "not there", Source: "s", Verdict: skip, Message: "skipped: why"},
	}
	var text, junit bytes.Buffer
	if err := writeText(&text, "d", results); err != nil {
		t.Fatal(err)
	}
	if want := "d: 1 ok, 1 failed, 1 skipped\n"; !strings.HasSuffix(text.String(), want) || !strings.Contains(text.String(), "wanted by: s") ||
		!strings.Contains(text.String(), "\n         | ::error::\ufffd[31mxxx") || text.Len() > 5000 {
		t.Errorf("got %s", text.String())
	}
	if err := writeJUnit(&junit, "d", results); err != nil {
		t.Fatal(err)
	}
	var suite testSuite
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || !strings.HasPrefix(suite.Cases[1].Failure.Message, "it <did> not\n") || suite.Cases[1].Failure.Wanted != "fails\nwanted by: s" || suite.Cases[0].Failure != nil {
		t.Errorf("got %+v", suite)
	}
}

func TestBadCommandLines(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"--driver-name", "d"},
		{"--driver-name", "d", "--exec", "true", "--kubeconfig", "f"},
		{"--driver-name", "d", "--exec", "true", "--run", "("},
		{"--driver-name", "d", "--exec", "true", "--run", "nonsense"},
		{"--driver-name", "d", "--exec", "true", "--output", "yaml"},
		{"--driver-name", "d", "--exec", "true", "more"},
		{"--nonsense"},
	} {
		if _, err := run(t.Context(), args, &bytes.Buffer{}, quick()); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// clientOf returns a client of a new API server of this program.
func clientOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	server, err := startAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.url()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestSlicesOfOtherNodesAreLeftOutInACluster(t *testing.T) {
	n := &node{name: "own", driverName: testDriverName, client: clientOf(t)}
	for _, name := range []string{"own", "other"} {
		slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{Driver: testDriverName, NodeName: &name}}
		if _, err := n.client.ResourceV1().ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for command, want := range map[string]int{"": 1, "true": 2} {
		n.command = command
		if found, err := n.slices(t.Context()); err != nil || len(found) != want {
			t.Errorf("with the command %q: %d slices, want %d: %v", command, len(found), want, err)
		}
	}
}

func TestLimitsOfSlices(t *testing.T) {
	long := strings.Repeat("1", 61) + ".0.0"
	texts := func(count int, text string) []string { return slices.Repeat([]string{text}, count) }
	attribute := func(name resourceapi.QualifiedName, a resourceapi.DeviceAttribute) func(*resourceapi.ResourceSliceSpec) {
		return func(spec *resourceapi.ResourceSliceSpec) {
			spec.Devices[0].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{name: a}
		}
	}
	devices := func(spec *resourceapi.ResourceSliceSpec, count int) {
		for i := len(spec.Devices); i < count; i++ {
			spec.Devices = append(spec.Devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", i)})
		}
	}
	sets := func(spec *resourceapi.ResourceSliceSpec, count, counters int) {
		spec.Devices = nil
		for i := range count {
			set := resourceapi.CounterSet{Name: fmt.Sprintf("set-%d", i), Counters: map[string]resourceapi.Counter{}}
			for j := range counters {
				set.Counters[fmt.Sprintf("counter-%d", j)] = resourceapi.Counter{}
			}
			spec.SharedCounters = append(spec.SharedCounters, set)
		}
	}
	for want, change := range map[string]func(*resourceapi.ResourceSliceSpec){
		"":                        func(*resourceapi.ResourceSliceSpec) {},
		"is of node other":        func(s *resourceapi.ResourceSliceSpec) { s.NodeName = new("other") },
		"0 of nodeName":           func(s *resourceapi.ResourceSliceSpec) { s.NodeName = nil },
		"2 of nodeName":           func(s *resourceapi.ResourceSliceSpec) { s.AllNodes = new(true) },
		"say that it has 1 and 2": func(s *resourceapi.ResourceSliceSpec) { s.Pool.ResourceSliceCount = 2 },
		": 129 devices,":          func(s *resourceapi.ResourceSliceSpec) { devices(s, 129) },
		"65 devices, at most 64": func(s *resourceapi.ResourceSliceSpec) {
			s.Devices[0].Taints = make([]resourceapi.DeviceTaint, 1)
			devices(s, 65)
		},
		"17 taints": func(s *resourceapi.ResourceSliceSpec) { s.Devices[0].Taints = make([]resourceapi.DeviceTaint, 17) },
		"3 entries of consumesCounters": func(s *resourceapi.ResourceSliceSpec) {
			s.Devices[0].ConsumesCounters = make([]resourceapi.DeviceCounterConsumption, 3)
		},
		"5 binding conditions":      func(s *resourceapi.ResourceSliceSpec) { s.Devices[0].BindingConditions = texts(5, "c") },
		"9 counter sets":            func(s *resourceapi.ResourceSliceSpec) { sets(s, 9, 1) },
		"33 counters in set":        func(s *resourceapi.ResourceSliceSpec) { sets(s, 1, 33) },
		"devices and counter sets":  func(s *resourceapi.ResourceSliceSpec) { s.SharedCounters = make([]resourceapi.CounterSet, 1) },
		"is in its pool twice":      func(s *resourceapi.ResourceSliceSpec) { s.Devices = append(s.Devices, s.Devices[0]) },
		"device \"Upper\"":          func(s *resourceapi.ResourceSliceSpec) { s.Devices[0].Name = "Upper" },
		"0 kinds of values":         attribute("a", resourceapi.DeviceAttribute{}),
		"2 kinds of values":         attribute("a", resourceapi.DeviceAttribute{StringValue: new("s"), BoolValue: new(true)}),
		"49 values of attributes":   attribute("a", resourceapi.DeviceAttribute{StringValues: texts(49, "s")}),
		"attribute a: 65 bytes":     attribute("a", resourceapi.DeviceAttribute{VersionValue: &long}),
		"\"v1.0.0\" is no semantic": attribute("a", resourceapi.DeviceAttribute{VersionValue: new("v1.0.0")}),
		"\"1.0\" is no semantic":    attribute("a", resourceapi.DeviceAttribute{VersionValues: texts(1, "1.0")}),
		"name \"a-b\"":              attribute("a-b", resourceapi.DeviceAttribute{StringValue: new("s")}),
		"name \"Domain/a\"":         attribute("Domain/a", resourceapi.DeviceAttribute{StringValue: new("s")}),
		"33 bytes of an identifier": attribute(resourceapi.QualifiedName(strings.Repeat("a", 33)), resourceapi.DeviceAttribute{StringValue: new("s")}),
	} {
		slice := func() resourceapi.ResourceSlice {
			return resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
				NodeName: new("own"), Pool: resourceapi.ResourcePool{Name: "pool", ResourceSliceCount: 1}, Devices: []resourceapi.Device{{Name: "device-0"}},
			}}
		}
		changed := slice()
		change(&changed.Spec)
		found := []resourceapi.ResourceSlice{changed}
		if changed.Spec.Pool.ResourceSliceCount > 1 {
			found = []resourceapi.ResourceSlice{slice(), changed}
		}
		err := errors.Join((&node{name: "own"}).invalid(found)...)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestTheAPIServerKnowsAllKinds(t *testing.T) {
	client := clientOf(t)
	if _, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	scopes := map[string]bool{}
	for _, version := range []string{"v1", "resource.k8s.io/v1"} {
		list, err := client.Discovery().ServerResourcesForGroupVersion(version)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range list.APIResources {
			scopes[found.Kind] = found.Namespaced
		}
	}
	if namespaced, ok := scopes["ResourceClaim"]; !ok || !namespaced || scopes["ResourceSlice"] || !scopes["ConfigMap"] {
		t.Errorf("got %v", scopes)
	}
	if _, err := client.Discovery().ServerResourcesForGroupVersion("resource.k8s.io/v1beta1"); err == nil {
		t.Error("an old version is served")
	}
}

func TestAnUpdateWithoutAChangeKeepsTheVersion(t *testing.T) {
	nodes := clientOf(t).CoreV1().Nodes()
	first, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, labels := range []map[string]string{nil, {"a": "b"}} {
		changed := first.DeepCopy()
		changed.Labels = labels
		if changed, err = nodes.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if (changed.ResourceVersion == first.ResourceVersion) != (labels == nil) {
			t.Errorf("labels %v: version %s after %s", labels, changed.ResourceVersion, first.ResourceVersion)
		}
	}
}

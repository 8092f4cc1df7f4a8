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
	"strings"
	"testing"
	"time"

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
func sanity(t *testing.T, fault, scenarios string) map[string]result {
	t.Helper()
	var out bytes.Buffer
	command := command(fault)
	if fault == "ignores SIGTERM" || fault == "leaks files" {
		// A command need not exec the driver.
		command = strings.TrimPrefix(command, "exec ") + "; true"
	}
	failed, err := run(t.Context(), []string{"--driver-name", testDriverName, "--exec", command, "--claims", "30", "--run", scenarios, "--output", "json"}, &out, quick())
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
		"asks for time":  {"prepare", "kill-within"},
		"is unavailable": {"prepare-api-away"},
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

func TestTooFewDevicesAreNoVerdict(t *testing.T) {
	t.Parallel()
	if r := sanity(t, "has one device", "^prepare-two-devices$")["prepare-two-devices"]; r.Verdict != skip {
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
		{ID: "b", Want: "fails", Source: "s", Verdict: failure, Message: "it <did> not"},
		{ID: "c", Want: "not there", Source: "s", Verdict: skip, Message: "skipped: why"},
	}
	var text, junit bytes.Buffer
	if err := writeText(&text, "d", results); err != nil {
		t.Fatal(err)
	}
	if want := "d: 1 ok, 1 failed, 1 skipped\n"; !strings.HasSuffix(text.String(), want) || !strings.Contains(text.String(), "wanted by: s") {
		t.Errorf("got %s", text.String())
	}
	if err := writeJUnit(&junit, "d", results); err != nil {
		t.Fatal(err)
	}
	var suite testSuite
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	if suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || suite.Cases[1].Failure.Message != "it <did> not" || suite.Cases[0].Failure != nil {
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

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// A pod of a high priority waits for a GPU whose memory a tenant of a low priority holds in shares. The
// command names the pod to end, ends exactly it, and the waiting pod runs, not the next pod of the tenant.
func TestRoomIsMadeForAPodOfAHigherPriority(t *testing.T) {
	needsKubernetes(t, "1.37", "DeviceTaintRules")
	nothingLeft(t)
	apply(t, "", roomPriorities)
	t.Cleanup(func() {
		kubectl(t, "delete", "priorityclass", "room-low", "room-high")
	})
	low, high := namespaceFor(t, "room-low"), namespaceFor(t, "room-high")
	apply(t, low, claim("seven", "count: 7", "")+pod("seven", "seven", ""))
	ready(t, low, "seven")
	apply(t, low, roomShares())
	must(t, cluster.WaitCount(t.Context(), low, 3))
	apply(t, high, urgent())
	if _, err := cluster.Unschedulable(t.Context(), high, "urgent"); err != nil {
		t.Error(err)
	}
	out, err := cluster.GPU(t.Context(), "room", "urgent", "--namespace", high)
	if err != nil || !strings.Contains(out, fmt.Sprintf("pod %s/urgent would run on node %s after the end of 1 pod\n  %s/shares-", high, cluster.NodeName, low)) {
		t.Fatalf("room: %v\n%s", err, out)
	}
	waitExplained(t, high, "urgent", 2, "kubectl gpu room urgent --namespace "+high+" shows 1 pod whose end lets it run")
	out, err = cluster.GPU(t.Context(), "room", "urgent", "--namespace", high, "--evict")
	if err != nil || strings.Count(out, " evicted\n") != 1 || !strings.Contains(out, "taint gpu.nvidia.com/room\n") || !strings.Contains(out, fmt.Sprintf("pod %s/urgent has its node: %s", high, cluster.NodeName)) {
		t.Fatalf("room --evict: %v\n%s", err, out)
	}
	t.Log(out)
	ready(t, high, "urgent")
	ready(t, low, "seven")
	if rules, err := cluster.Kubectl(t.Context(), "get", "devicetaintrules", "--output", "name"); err != nil || strings.TrimSpace(rules) != "" {
		t.Errorf("rules are left: %s, %v", rules, err)
	}
}

// With the controller, the same happens without a command. The users of both pods read why.
func TestTheControllerMakesRoom(t *testing.T) {
	needsKubernetes(t, "1.37", "DeviceTaintRules")
	nothingLeft(t)
	low, high := namespaceFor(t, "room-low"), namespaceFor(t, "room-high")
	enable := func(value string) {
		_, err := cluster.Helm(context.WithoutCancel(t.Context()), "upgrade", "--reuse-values", "--set", "room.enabled="+value+",room.after=5s", harness.Namespace, "deployments/helm/gpu-dra-driver")
		must(t, err)
	}
	t.Cleanup(func() {
		enable("false")
		kubectl(t, "delete", "priorityclass", "room-low", "room-high")
	})
	apply(t, "", roomPriorities)
	apply(t, low, claim("seven", "count: 7", "")+pod("seven", "seven", ""))
	ready(t, low, "seven")
	apply(t, low, roomShares())
	must(t, cluster.WaitCount(t.Context(), low, 3))
	apply(t, high, urgent())
	enable("true")
	ready(t, high, "urgent")
	ready(t, low, "seven")
	if _, err := cluster.WaitEvent(t.Context(), high, "urgent", "1 pod of a lower priority on node "+cluster.NodeName+" will be evicted for this pod"); err != nil {
		t.Error(err)
	}
	if events, err := cluster.Kubectl(t.Context(), "get", "events", "--namespace", low); err != nil || !strings.Contains(events, "evicted for a pod of a higher priority") || strings.Contains(events, high) {
		t.Errorf("events of the pods that ended: %v\n%s", err, events)
	}
	must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		rules, err := cluster.Kubectl(ctx, "get", "devicetaintrules", "--output", "name")
		return strings.TrimSpace(rules) == "", "rules are left: " + rules, err
	}))
}

// urgent is a pod of a high priority, whose claim tolerates the taint of a room.
func urgent() string {
	tolerant := strings.Replace(share("urgent", "45Gi", ""), "deviceClassName:", "tolerations: [{key: gpu.nvidia.com/room, operator: Equal, value: room-high}]\n        deviceClassName:", 1)
	return tolerant + strings.Replace(pod("urgent", "urgent", ""), "spec:", "spec:\n  priorityClassName: room-high", 1)
}

// roomShares are two pods that share a GPU, and are created again.
func roomShares() string {
	return replicas("shares", 2, share("shares", "30Gi", ""), "priorityClassName: room-low")
}

const roomPriorities = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: room-low}
value: -10
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: room-high}
value: 1000
`

// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// TestNoClaimIsLostOrDoubleWhileNodesComeAndGo lets all events happen again and again, with load before,
// during and after each.
func TestNoClaimIsLostOrDoubleWhileNodesComeAndGo(t *testing.T) {
	const namespace = "load"
	must(t, cluster.CreateNamespace(t.Context(), namespace))
	offered, err := devices(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	l := newLoad(namespace, cluster.Nodes())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		t.Log(l.summary())
		for _, finding := range l.found() {
			t.Error(finding)
		}
		if t.Failed() {
			t.Logf("the agents' logs end with:\n%s", agent.LogTail(context.WithoutCancel(ctx)))
		}
		if err := cluster.DeleteNamespace(context.WithoutCancel(ctx), namespace); err != nil {
			t.Error(err)
		}
	})

	began := time.Now()
	for round := 1; round == 1 || time.Since(began) < *duration; round++ {
		for _, event := range events(l, round) {
			l.wait(t, *duration/30)
			t.Logf("round %d, %s; %s", round, event.name, l.summary())
			if err := event.happens(ctx); err != nil {
				t.Fatalf("%s: %v", event.name, err)
			}
		}
	}
	l.wait(t, *duration/30)
	l.stop()
	select {
	case <-ended:
	case <-l.failed:
		t.FailNow()
	}
	if l.compared == 0 {
		t.Error("no container was compared")
	}

	minute, cancelMinute := context.WithTimeout(ctx, time.Minute)
	defer cancelMinute()
	must(t, harness.Until(minute, func(ctx context.Context) (bool, string, error) {
		left, err := leftovers(ctx)
		if err != nil || len(left) > 0 {
			return false, "left a minute after the last claim: " + strings.Join(left, ", "), err
		}
		now, err := devices(ctx)
		diff := cmp.Diff(offered, now)
		return diff == "", "what the nodes offer (-before +after):\n" + diff, err
	}))
}

type event struct {
	name    string
	happens func(context.Context) error
}

func events(l *load, round int) []event {
	drained, replaced := cluster.Further[0], cluster.Further[1]
	return []event{
		{"a node is drained", func(ctx context.Context) error { return drain(ctx, drained) }},
		{"a node is replaced", func(ctx context.Context) error {
			return l.excuse(replaced.NodeName, func() error { return replace(ctx, replaced) })
		}},
		{"kubelets and container runtimes restart", func(ctx context.Context) error {
			for _, node := range cluster.Nodes() {
				for _, daemon := range []string{"kubelet", "containerd"} {
					// A container that is about to start then fails.
					if err := l.excuse(node.NodeName, func() error { return node.Restart(ctx, daemon) }); err != nil {
						return err
					}
				}
			}
			return nil
		}},
		{"the API server is away", func(ctx context.Context) error {
			if err := cluster.Kill(ctx, "kube-apiserver"); err != nil {
				return err
			}
			select {
			case <-time.After(*duration / 12):
			case <-ctx.Done():
			}
			return cluster.Restart(ctx, "kube-apiserver")
		}},
		{"the driver is updated", func(ctx context.Context) error {
			if err := agent.Upgrade(ctx, fmt.Sprintf("--reconcile-interval=%dm", round)); err != nil {
				return err
			}
			return agent.WaitReady(ctx)
		}},
	}
}

// drain drains a node, waits until it holds nothing, and uncordons it.
func drain(ctx context.Context, node *harness.Cluster) error {
	if _, err := cluster.Kubectl(ctx, "drain", node.NodeName, "--ignore-daemonsets", "--force", "--timeout=5m"); err != nil {
		return err
	}
	if err := harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		left, err := node.NewAgent(model).Leftovers(ctx)
		return len(left) == 0, "left on a drained node: " + strings.Join(left, ", "), err
	}); err != nil {
		return err
	}
	_, err := cluster.Kubectl(ctx, "uncordon", node.NodeName)
	return err
}

// replace ends all of a node at once, as a power failure does, and brings up another machine under its name. Pods
// that were bound to the old node are for the new one to start.
func replace(ctx context.Context, node *harness.Cluster) error {
	if err := node.Down(ctx); err != nil {
		return err
	}
	if _, err := cluster.Kubectl(ctx, "delete", "node", node.NodeName); err != nil {
		return err
	}
	if err := cluster.AddNodes(ctx, 1+len(cluster.Further)); err != nil {
		return err
	}
	if err := node.LoadImages(ctx); err != nil {
		return err
	}
	return agent.WaitReady(ctx)
}

// devices are all devices that the nodes offer, by pool and name.
func devices(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	err := cluster.EachSlice(ctx, func(slice resourceapi.ResourceSlice) {
		for _, device := range slice.Spec.Devices {
			all[slice.Spec.Pool.Name+"/"+device.Name] = len(device.Taints) == 0
		}
	})
	return all, err
}

// leftovers are what the nodes still hold for claims, and their MPS daemons.
func leftovers(ctx context.Context) ([]string, error) {
	var all []string
	for _, node := range cluster.Nodes() {
		left, err := node.NewAgent(model).Leftovers(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, left...)
	}
	pods, err := cluster.Kubectl(ctx, "get", "pods", "-n", harness.Namespace, "-l", "app.kubernetes.io/component=supervisor", "-o", "name")
	if err != nil {
		return nil, err
	}
	for _, pod := range strings.Fields(pods) {
		daemons, err := cluster.Kubectl(ctx, "exec", "-n", harness.Namespace, pod, "--", "gpu-mps-supervisor", "status", "-o", "json")
		if err != nil {
			return nil, err
		}
		if strings.TrimSpace(daemons) != "[]" {
			all = append(all, pod+" has MPS daemons: "+daemons)
		}
	}
	return all, nil
}

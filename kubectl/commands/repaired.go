// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func (o *options) newRepaired() *cobra.Command {
	cmd := o.newVerb("repaired NODE/GPU", "Declare a failed GPU repaired, so that it gets claims again",
		"Sets the annotation "+v1alpha1.AnnotationRepaired+" of the node: the faults that the node publishes have\n"+
			"ended. It repairs nothing: reset the GPU first. A cordon remains.",
		func(ctx context.Context, v *verb) error {
			t, objects, err := v.find(ctx, doctor.Slices, doctor.Claims)
			if err != nil {
				return err
			}
			return v.declare(ctx, t, objects.Nodes)
		})
	cmd.Example = "  kubectl gpu repaired node-1/gpu-1b-00"
	return cmd
}

// declare writes the annotation for a GPU with a fault.
func (v *verb) declare(ctx context.Context, t cordon.Target, nodes []*corev1.Node) error {
	faults := t.Faults()
	if !slices.ContainsFunc(t.GPU.Devices, func(d fleet.Device) bool { return d.Published != nil }) {
		return fmt.Errorf("%s: %w: its node does not publish it, so its faults are not known: kubectl gpu doctor %s", t, gpu.ErrNotReady, t.Node)
	}
	if len(faults) == 0 {
		v.say("%s has no fault: nothing to declare", t)
		return nil
	}
	for _, fault := range faults {
		v.say("%s has the fault %s", t, faultText(fault))
		if err := cordon.CheckRepairable(fault.Value); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	var change cordon.Repaired
	_, err := v.annotate(ctx, t.Node, v1alpha1.AnnotationRepaired, func(old string) string {
		change = cordon.NewRepaired(old, t, time.Now())
		return change.Value
	})
	if err != nil {
		return err
	}
	for _, entry := range change.Dropped {
		v.say("dropped the entry %q of the annotation, which is not valid", entry)
	}
	if v.dryRun {
		return nil
	}
	when := "within a minute"
	if v.lacksAgent(ctx, t.Node, nodes) {
		when = "once it is ready, which it is not: kubectl gpu doctor " + t.Node
	}
	v.say("%s is declared repaired: its agent ends the fault %s", t, when)
	return nil
}

// lacksAgent reports whether the agent of a node is known not to be ready.
func (v *verb) lacksAgent(ctx context.Context, node string, nodes []*corev1.Node) bool {
	c, err := v.driverPods(ctx, v.client)
	if err != nil || len(c.DaemonSets) == 0 {
		return false
	}
	agents := rows.AgentsOf(c, nodes)
	return agents != nil && !agents[node].Ready
}

// annotate changes an annotation of a node, and says so. It reports whether the annotation had
// another value.
func (v *verb) annotate(ctx context.Context, name, key string, change func(old string) string) (changed bool, err error) {
	var value string
	nodes := v.client.CoreV1().Nodes()
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		value = change(node.Annotations[key])
		changed = value != node.Annotations[key]
		if v.dryRun || !changed {
			return nil
		}
		annotations := map[string]any{key: value}
		if value == "" {
			annotations[key] = nil
		}
		// With the version, another user's entry cannot get lost.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": annotations}})
		if err != nil {
			return err
		}
		_, err = nodes.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return false, failed("get and patch nodes", err)
	}
	if changed {
		v.say("annotate node %s: %s=%s", name, key, value)
	}
	return changed, nil
}

func faultText(fault resourceapi.DeviceTaint) string {
	if fault.TimeAdded.IsZero() {
		return fault.Value
	}
	return fmt.Sprintf("%s since %s", fault.Value, fault.TimeAdded.UTC().Format(time.RFC3339))
}

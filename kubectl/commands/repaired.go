// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
)

func (o *options) newRepaired() *cobra.Command {
	cmd := o.newVerb("repaired NODE/GPU", "Declare a failed GPU repaired, so that it gets claims again",
		"Sets the annotation "+v1alpha1.AnnotationRepaired+" of the node: the faults that the node publishes have\n"+
			"ended. It repairs nothing: reset the GPU first. A cordon remains.",
		func(ctx context.Context, v *verb) error {
			t, _, err := v.find(ctx, doctor.Slices, doctor.Claims)
			if err != nil {
				return err
			}
			return v.declare(ctx, t)
		})
	cmd.Example = "  kubectl gpu repaired node-1/gpu-1b-00"
	return cmd
}

// declare writes the annotation for a GPU with a fault.
func (v *verb) declare(ctx context.Context, t cordon.Target) error {
	faults := t.Faults()
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
	if !v.dryRun {
		v.say("%s is declared repaired: its agent ends the fault within a minute", t)
	}
	return nil
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

// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/evict"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func (o *options) newCordon() *cobra.Command {
	var reason string
	cmd := o.newVerb("cordon NODE/GPU", "Take a GPU out of use: new claims do not get it, claims that have it keep it",
		"Writes a DeviceTaintRule for each device of the GPU: the GPU, its time slices, seats and MIG devices. An annotation\n"+
			"of the node names the GPU: its agent taints devices that it publishes later. Claims that\n"+
			"have the GPU keep it; kubectl gpu drain evicts their pods. A claim that tolerates all taints still gets it.",
		func(ctx context.Context, v *verb) error {
			if err := cordon.CheckReason(reason); err != nil {
				return fmt.Errorf("--%w", err)
			}
			t, objects, err := v.find(ctx, doctor.Slices, doctor.Claims, doctor.Rules)
			if err != nil {
				return err
			}
			if err := v.cordon(ctx, t, objects.TaintRules, reason); err != nil {
				return err
			}
			if t.Claims() > 0 {
				v.say("claims that have it keep it (%d): kubectl gpu drain %s evicts their pods", t.Claims(), t)
			}
			return nil
		})
	cmd.Example = "  kubectl gpu cordon node-1/gpu-1b-00 --reason \"XID 79, ticket 4711\"\n  kubectl gpu cordon node-1/gpu-1b-00 --dry-run"
	cmd.Flags().StringVar(&reason, "reason", "", "reason, kept as an annotation of the rules")
	return cmd
}

// cordon writes the rules that a GPU lacks.
func (v *verb) cordon(ctx context.Context, t cordon.Target, existing []*resourceapi.DeviceTaintRule, reason string) error {
	c := cordon.NewCordon(t, existing, reason)
	annotated, err := v.setCordoned(ctx, t.Name, true)
	if err != nil {
		return fmt.Errorf("cordon %s: %w", t, err)
	}
	if len(c.Create) == 0 && !annotated {
		v.say("%s is cordoned already (DeviceTaintRules: %d)", t, len(c.Kept))
		return nil
	}
	if len(c.Create) > 0 {
		v.say("cordon %s: taint %s on %s", t, v1alpha1.TaintCordoned, rows.List(fleet.Each(c.Create, cordon.DeviceOf)))
	}
	if !v.dryRun {
		if err := v.write(ctx, c); err != nil {
			return fmt.Errorf("cordon %s: %w", t, err)
		}
		v.say("%s is cordoned (DeviceTaintRules: %d created, %d kept)", t, len(c.Create), len(c.Kept))
	}
	return nil
}

// setCordoned adds a GPU to the node's annotation, or removes it. It reports whether that was a
// change. The agent of the node covers devices that have no rule yet.
func (v *verb) setCordoned(ctx context.Context, of cordon.Name, cordoned bool) (changed bool, err error) {
	return v.annotate(ctx, of.Node, v1alpha1.AnnotationCordoned, func(old string) string { return cordon.Cordoned(old, of.GPU, cordoned) })
}

// write creates the rules of a cordon.
func (v *verb) write(ctx context.Context, c cordon.Cordon) error {
	rules := v.client.ResourceV1().DeviceTaintRules()
	return evict.ForEach(ctx, c.Create, func(ctx context.Context, rule *resourceapi.DeviceTaintRule) error {
		_, err := rules.Create(ctx, rule, metav1.CreateOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w: the API server does not serve DeviceTaintRules of resource.k8s.io/v1; it needs Kubernetes 1.37 or newer", gpu.ErrNotSupported)
		case apierrors.IsAlreadyExists(err):
			return v.existing(ctx, rule, err)
		case err != nil:
			return failed("create devicetaintrules.resource.k8s.io", err)
		}
		return nil
	})
}

// existing returns nil if another run of the command has created the rule meanwhile.
func (v *verb) existing(ctx context.Context, rule *resourceapi.DeviceTaintRule, err error) error {
	found, getErr := v.client.ResourceV1().DeviceTaintRules().Get(ctx, rule.Name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return failed("get devicetaintrules.resource.k8s.io", getErr)
	case len(cordon.Rules([]*resourceapi.DeviceTaintRule{found}, v.name)) > 0 && cordon.DeviceOf(found) == cordon.DeviceOf(rule):
		return nil
	}
	return fmt.Errorf("DeviceTaintRule %s: %w: another program wrote it: delete it, then run the command again", rule.Name, err)
}

func (o *options) newUncordon() *cobra.Command {
	cmd := o.newVerb("uncordon NODE/GPU", "Bring a cordoned GPU back into use",
		"Deletes the DeviceTaintRules of kubectl gpu cordon and its entry in the node's annotation, and no others: a taint of the driver, such as that of a\n"+
			"failed GPU, remains.",
		func(ctx context.Context, v *verb) error {
			// The rules of a GPU that is gone can be deleted too.
			t, objects, err := v.find(ctx, doctor.Slices, doctor.Claims, doctor.Rules)
			if errors.Is(err, gpu.ErrNotFound) {
				t = cordon.Target{Name: v.name}
			} else if err != nil {
				return err
			}
			rules := cordon.Rules(objects.TaintRules, t.Name)
			annotated, unchanged := v.setCordoned(ctx, t.Name, false)
			switch {
			case unchanged != nil && !apierrors.IsNotFound(unchanged):
				return fmt.Errorf("uncordon %s: %w", t, unchanged)
			case len(rules) == 0 && !annotated && err != nil:
				return err
			case len(rules) == 0 && !annotated:
				v.say("%s is not cordoned", t)
				return nil
			}
			return v.uncordon(ctx, t, rules, objects.Nodes)
		})
	cmd.Example = "  kubectl gpu uncordon node-1/gpu-1b-00"
	return cmd
}

func (v *verb) uncordon(ctx context.Context, t cordon.Target, rules []*resourceapi.DeviceTaintRule, nodes []*corev1.Node) error {
	if len(rules) > 0 {
		v.say("uncordon %s: remove the taint %s of %s", t, v1alpha1.TaintCordoned, rows.List(fleet.Each(rules, cordon.DeviceOf)))
	}
	if v.dryRun {
		return nil
	}
	if err := evict.ForEach(ctx, rules, func(ctx context.Context, rule *resourceapi.DeviceTaintRule) error {
		err := v.client.ResourceV1().DeviceTaintRules().Delete(ctx, rule.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(rule.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			return failed("delete devicetaintrules.resource.k8s.io", err)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("uncordon %s: %w", t, err)
	}
	v.say("%s is uncordoned (DeviceTaintRules: %d deleted)", t, len(rules))
	if v.lacksAgent(ctx, t.Node, nodes) {
		v.say("the agent of node %s is not ready: a taint that it has set stays until it is: kubectl gpu doctor %s", t.Node, t.Node)
	}
	for _, fault := range t.Faults() {
		v.say("%s stays out of use: it has the fault %s", t, fault.Value)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func (o *options) newExplain() *cobra.Command {
	var most int
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "explain POD | claim/CLAIM",
		Example: `  # Why a pod waits, with the devices of the ten nearest nodes
  kubectl gpu explain train -n team-a --nodes 10

  # Why a claim without a pod waits
  kubectl gpu explain claim/shared -n team-a`,
		Short: "The state of a pod and its devices: what waits, is sick or has failed, and what to change",
		Long: "Explain a pod from its creation to its end, or a claim: the health of its devices, its limits, why it waits,\n" +
			"node by node and device by device, why it has failed, and what to change.\n\n" +
			"The exit status is:\n" +
			"  0  the pod runs and its devices are healthy, it has ended without an error, or the claim has or would get its devices\n" +
			"  1  the command has failed\n" +
			"  2  the pod or claim waits: for devices, for its start or for its end\n" +
			"  3  a device of the pod or claim has a fault\n" +
			"  4  a container of the pod has failed\n" +
			"  5  the health of a device is not known, or whether the claim would get its devices",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.readForExplain(cmd.Context())
			if err != nil {
				return err
			}
			question := rows.Question{Namespace: v.namespace, Name: args[0], Nodes: most, Limit: limit}
			evidence, err := o.evidence(cmd.Context(), v, question)
			if err != nil {
				return err
			}
			e, err := v.Explain(cmd.Context(), question, evidence)
			if err != nil {
				return err
			}
			return cmp.Or(o.printSections(e, e.Sections(o.output == "wide")), statusOf(e.Outcome))
		},
	}
	cmd.Flags().IntVar(&most, "nodes", 3, "number of nodes that are explained device by device")
	cmd.Flags().DurationVar(&limit, "limit", 20*time.Second, "time for the search; nodes and devices beyond it are named as not examined")
	return cmd
}

// Warnings returns the warnings about a pod, except those of the scheduler. The error wraps
// [gpu.ErrPermission] if the user may not list events.
func (r reader) Warnings(ctx context.Context, pod *corev1.Pod) ([]corev1.Event, error) {
	list, err := r.client.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.AndSelectors(
			fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)),
			fields.OneTermEqualSelector("type", corev1.EventTypeWarning),
			fields.OneTermNotEqualSelector("reason", "FailedScheduling"),
		).String(),
	})
	switch {
	case apierrors.IsForbidden(err):
		return nil, gpu.ErrPermission
	case err != nil:
		return nil, fmt.Errorf("list the events of pod %s: %w", pod.Name, err)
	}
	return list.Items, nil
}

// textOf returns sections for printing. A message cannot add lines to them.
func textOf(sections []rows.Section) string {
	var b strings.Builder
	for i, section := range sections {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(plain.Line(section.Heading) + "\n")
		for _, line := range section.Lines {
			b.WriteString("  " + plain.Line(line) + "\n")
		}
	}
	return b.String()
}

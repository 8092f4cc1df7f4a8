// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/gpu-dra/gpu-dra-driver/pkg/doctor"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpurows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/plain"
)

func (o *options) newExplain() *cobra.Command {
	var most int
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "explain POD | claim/CLAIM",
		Short: "Why a pod or claim does not get its devices, node by node and device by device, and what to change",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.read(cmd.Context(), doctor.Classes)
			if err != nil {
				return err
			}
			e, err := v.Explain(cmd.Context(), gpurows.Question{Namespace: v.namespace, Name: args[0], Nodes: most, Limit: limit}, v.Warnings)
			if err != nil {
				return err
			}
			if o.output != "" && o.output != "wide" {
				return o.print(e, table{})
			}
			_, err = io.WriteString(o.Out, textOf(e))
			return err
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
		return nil, err
	}
	return list.Items, nil
}

// textOf returns the explanation for printing. A message cannot add lines to it.
func textOf(e gpurows.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", plain.Line(e.Subject))
	for _, fact := range e.Facts {
		fmt.Fprintf(&b, "  %s\n", plain.Line(fact))
	}
	if len(e.Fits) > 0 {
		fmt.Fprintf(&b, "\nThe devices are free on %s.\n", plain.Line(gpurows.List(e.Fits)))
	}
	for _, miss := range e.Misses {
		fmt.Fprintf(&b, "\nNode %s: %s\n", plain.Line(miss.Node), plain.Line(miss.Missing))
		for _, r := range miss.Requests {
			fmt.Fprintf(&b, "  claim %s, request %s: %d of %d devices\n", plain.Line(r.Claim), plain.Line(r.Request), r.Meeting, r.Wanted)
			for _, d := range r.Devices {
				fmt.Fprintf(&b, "    %s: %s\n", plain.Line(d.Device), plain.Line(strings.Join(d.Reasons, "; ")))
			}
			if r.OtherClasses > 0 {
				fmt.Fprintf(&b, "    %d devices are not of the class\n", r.OtherClasses)
			}
			if r.OtherDevices > 0 {
				fmt.Fprintf(&b, "    %d further devices do not meet it either\n", r.OtherDevices)
			}
			if r.NotExamined > 0 {
				fmt.Fprintf(&b, "    %d devices were not examined (--limit)\n", r.NotExamined)
			}
		}
	}
	if e.Other > 0 {
		fmt.Fprintf(&b, "\n%d further nodes do not fit either (--nodes)\n", e.Other)
	}
	if len(e.NotExamined) > 0 {
		fmt.Fprintf(&b, "\nNot examined (--limit): %s\n", plain.Line(gpurows.List(e.NotExamined)))
	}
	// Nodes often have the same reasons.
	nodes := map[string][]string{}
	for _, excluded := range e.Excluded {
		reasons := strings.Join(excluded.Reasons, "; ")
		nodes[reasons] = append(nodes[reasons], excluded.Node)
	}
	for _, reasons := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(&b, "\nNot on %s: %s\n", plain.Line(gpurows.List(nodes[reasons])), plain.Line(reasons))
	}
	if len(e.Advice) > 0 {
		b.WriteString("\nWhat to do\n")
		for _, sentence := range e.Advice {
			fmt.Fprintf(&b, "  %s\n", plain.Line(sentence))
		}
	}
	return b.String()
}

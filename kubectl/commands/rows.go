// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// newRows returns a command that prints rows about nodes, with their use on request.
func (o *options) newRows(use, short string, print func(o *options, v *view, nodes []fleet.Node, used rows.Uses) error) *cobra.Command {
	run := func(ctx context.Context, o *options, names []string) error {
		v, err := o.read(ctx)
		if err != nil {
			return err
		}
		if err := o.addAgents(ctx, v); err != nil {
			return err
		}
		nodes, err := o.selectedNodes(v, names)
		if err != nil {
			return err
		}
		used, err := o.readUses(ctx, v, names)
		if err != nil {
			return err
		}
		return print(o, v, nodes, used)
	}
	cmd := &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, names []string) error {
		return o.repeat(cmd.Context(), func(ctx context.Context, o *options) error { return run(ctx, o, names) })
	}}
	o.usedFlag(cmd.Flags())
	o.rowFlags(cmd.Flags())
	return cmd
}

func (o *options) newGet() *cobra.Command {
	cmd := o.newRows("get [NODE...]", "The GPUs of the cluster: promised and used memory and compute, mode and health", func(o *options, v *view, nodes []fleet.Node, used rows.Uses) error {
		return o.printGPUs(v.GPUs(nodes, used))
	})
	o.watchFlag(cmd.Flags())
	return cmd
}

func (o *options) printGPUs(all []rows.GPU) error {
	t := table{heading: []string{"NODE", "GPU", "MODEL", "MODE", "CLAIMS", "MEMORY", "COMPUTE", "HEALTH"}, wide: []string{"UUID", "TAINTS"}, bad: map[int]bool{}}
	for i, g := range all {
		t.bad[i] = g.Health.State != rows.HealthOK
		memory, compute := g.MemoryText(), g.ComputeText()
		if g.Mode != rows.ModeUnknown && !g.Partial {
			memory = bar(g.MemoryPromised.AsApproximateFloat64(), g.Memory.AsApproximateFloat64()) + " " + memory
			compute = bar(g.ComputePart(), 1) + " " + compute
		}
		t.rows = append(t.rows, []string{
			g.Node, rows.OrDash(g.Name), rows.OrDash(strings.TrimPrefix(g.Model, "NVIDIA ")), string(g.Mode), g.ClaimsText(),
			memory, compute, g.Health.Text(time.Now()), rows.OrDash(g.UUID), rows.OrDash(strings.Join(g.Taints, ",")),
		})
	}
	o.addUse(&t, func(i int) (rows.Use, float64) { return all[i].Use, all[i].Memory.AsApproximateFloat64() })
	o.addForeign(&t, func(i int) *rows.Foreign { return all[i].Foreign })
	return printList(o, "GPUList", all, t, "no node"+o.ofSelector()+" publishes GPUs of "+o.driver+": kubectl gpu doctor finds the reason")
}

// ofSelector returns the words for --selector in a sentence about nodes.
func (o *options) ofSelector() string {
	if o.selector == "" {
		return ""
	}
	return " with the labels " + o.selector
}

func (o *options) newWho() *cobra.Command {
	var everywhere bool
	cmd := o.newRows("who [NODE...]", "The pods, containers and claims of each device, and their limits", func(o *options, v *view, nodes []fleet.Node, used rows.Uses) error {
		namespace := v.namespace
		if everywhere {
			namespace = metav1.NamespaceAll
		}
		return o.printHolders(v.Holders(nodes, namespace, used), o.noHolders(v, nodes, namespace))
	})
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "claims of all namespaces")
	o.watchFlag(cmd.Flags())
	return cmd
}

// noHolders returns the sentence for a namespace whose claims hold nothing on the nodes.
func (o *options) noHolders(v *view, nodes []fleet.Node, namespace string) string {
	where := ""
	if len(nodes) < len(v.Nodes()) {
		where = " on these nodes"
	}
	switch others := len(rows.Holders(nodes, metav1.NamespaceAll, nil)) > 0; {
	case namespace == metav1.NamespaceAll:
		return "no claim holds a device" + where
	case others:
		return fmt.Sprintf("no claim of the namespace %s holds a device%s, claims of other namespaces do: see them with --all-namespaces (-A)", namespace, where)
	case v.Refused[doctor.Claims] != "":
		return fmt.Sprintf("no claim of the namespace %s holds a device%s; name another namespace with --namespace", namespace, where)
	default:
		return fmt.Sprintf("no claim of any namespace holds a device%s", where)
	}
}

func (o *options) printHolders(all []rows.Holder, empty string) error {
	t := table{heading: []string{"NAMESPACE", "POD", "CONTAINER", "CLAIM", "NODE", "DEVICE", "MEMORY", "COMPUTE", "HEALTH", "LIMITED BY"}, wide: []string{"LIMIT OF A PROCESS", "LIMIT OF A CONTAINER"}, bad: map[int]bool{}}
	for i, h := range all {
		t.bad[i] = h.Health.State != rows.HealthOK
		memory, pod := "-", h.Pod
		if !h.Memory.IsZero() {
			memory = rows.Gibibytes(h.Memory)
		}
		if pod == "" && h.PodGroup != "" {
			pod = "PodGroup " + h.PodGroup
		}
		process, container := h.Limits()
		t.rows = append(t.rows, []string{
			h.Namespace, rows.OrDash(pod), rows.OrDash(h.Container), h.Claim, h.Node, h.Device, memory, h.ComputeText(), h.Health.Text(time.Now()), h.HeldBy(),
			rows.OrDash(process), rows.OrDash(container),
		})
	}
	o.addUse(&t, func(i int) (rows.Use, float64) { return all[i].Use, 0 })
	o.addForeign(&t, func(i int) *rows.Foreign { return all[i].Foreign })
	return printList(o, "HolderList", all, t, empty)
}

func (o *options) newUsage() *cobra.Command {
	cmd := o.newRows("usage", "The GPUs, memory and compute that are promised to each namespace, and for how long", func(o *options, _ *view, nodes []fleet.Node, used rows.Uses) error {
		usages := rows.Usages(nodes, time.Now(), used)
		total := rows.Total(usages)
		all := append(slices.Clone(usages), total)
		t := table{heading: []string{"NAMESPACE", "CLAIMS", "GPUS", "MEMORY", "COMPUTE", "SLOTS", "GPU HOURS"}, totals: 1}
		for _, u := range all {
			t.rows = append(t.rows, u.Cells())
		}
		o.addUse(&t, func(i int) (rows.Use, float64) { return all[i].Use, 0 })
		if foreign := rows.ForeignGPUs(nodes, used); len(foreign) > 0 {
			//nolint:errcheck // there is no other place to say so
			fmt.Fprintf(o.ErrOut, "Processes of pods without a claim use %s, for no namespace: see kubectl gpu get --used.\n", rows.List(foreign))
		}
		if err := printList(o, "UsageList", usages, t, "no claim of any namespace holds a device of "+o.driver); err != nil || o.output != "" && o.output != "wide" {
			return err
		}
		return o.printFleet(nodes, total.GPUs)
	})
	cmd.Args = cobra.NoArgs
	return cmd
}

// printFleet prints the number of GPUs, and how many of them are not promised.
func (o *options) printFleet(nodes []fleet.Node, promised float64) error {
	gpus := 0
	for _, node := range nodes {
		gpus += len(node.GPUs)
	}
	idle := rows.Tenths(max(0, float64(gpus)-promised)) + " idle"
	if o.partial {
		idle = "the rest idle, or of claims that you may not read"
	}
	_, err := fmt.Fprintf(o.Out, "\n%s, %s\n", fleet.Number(gpus, "GPU"), idle)
	return err
}

func (o *options) newFree() *cobra.Command {
	var memory string
	cmd := &cobra.Command{
		Use:   "free [CLASS...]",
		Short: "The number of further claims of each DeviceClass that fit, by node",
		Long: "For each class, the number of further claims for one device that fit, one after the other,\n" +
			"by the scheduler's own allocator. Claims of classes of shares have the memory of --memory.",
		RunE: func(cmd *cobra.Command, classes []string) error {
			if _, err := resource.ParseQuantity(memory); err != nil {
				return fmt.Errorf("--memory %s: %w: want an amount such as 10Gi", memory, gpu.ErrInvalid)
			}
			v, err := o.read(cmd.Context(), doctor.Classes)
			if err != nil {
				return err
			}
			if err := o.addAgents(cmd.Context(), v); err != nil {
				return err
			}
			if err := checkNames("class", classes, classNames(v), "kubectl get deviceclasses lists the classes"); err != nil {
				return err
			}
			isSelected, err := o.nodeSelector(v)
			if err != nil {
				return err
			}
			if v.NoAgents() {
				fmt.Fprintln(o.ErrOut, noAgentFound(o.driver)) //nolint:errcheck // there is no other place to say so
			}
			for _, sentence := range v.AgentProblems(time.Now()) {
				fmt.Fprintln(o.ErrOut, sentence) //nolint:errcheck // there is no other place to say so
			}
			all, err := v.FreeOf(cmd.Context(), classes, memory)
			if err != nil {
				return err
			}
			return o.printFree(slices.DeleteFunc(all, func(f rows.Free) bool { return f.Node != "" && !isSelected(f.Node) }))
		},
	}
	cmd.Flags().StringVar(&memory, "memory", "10Gi", "memory of each share")
	o.rowFlags(cmd.Flags())
	return cmd
}

func (o *options) printFree(all []rows.Free) error {
	t := table{heading: []string{"CLASS", "MEMORY", "NODE", "CLAIMS"}}
	for _, r := range all {
		t.rows = append(t.rows, []string{r.Class, r.MemoryText(), rows.OrDash(r.Node), r.ClaimsText()})
	}
	return printList(o, "FreeList", all, t, "no claim of these classes fits on any node"+o.ofSelector()+": kubectl gpu shows the holders' amounts, and kubectl gpu explain the reasons for a pod")
}

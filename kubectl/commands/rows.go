// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// newRows returns a command that prints rows about nodes, with their use on request.
func (o *options) newRows(use, short, example string, print func(v *view, nodes []fleet.Node, used rows.Uses) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Example: example, RunE: func(cmd *cobra.Command, names []string) error {
		ctx := cmd.Context()
		v, err := o.readWithSlices(ctx)
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
		return print(v, nodes, used)
	}}
	o.usedFlag(cmd.Flags())
	o.rowFlags(cmd.Flags())
	return cmd
}

func (o *options) newGet() *cobra.Command {
	return o.newRows("get [NODE...]", "The GPUs of the cluster: promised and used memory and compute, mode and health", `  # The GPUs of two nodes
  kubectl gpu get node-1 node-2
  # The GPUs that are not ok
  kubectl gpu get -o jsonpath='{range .items[?(@.health.state!="ok")]}{.node}/{.name}{"\n"}{end}'`, func(v *view, nodes []fleet.Node, used rows.Uses) error {
		return o.printGPUs(v.GPUs(nodes, used), used)
	})
}

func (o *options) printGPUs(all []rows.GPU, used rows.Uses) error {
	return printList(o, "GPUList", all, rows.GPUTable(all, used, time.Now()), "no node"+o.ofSelector()+" publishes GPUs of "+o.driver+": kubectl gpu doctor finds the reason")
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
	cmd := o.newRows("who [NODE...]", "The pods, containers and claims of each device, and their limits", `  # All holders on a node, with the memory that they use now
  kubectl gpu who node-1 -A --used`, func(v *view, nodes []fleet.Node, used rows.Uses) error {
		namespace := v.namespace
		if everywhere {
			namespace = metav1.NamespaceAll
		}
		return o.printHolders(v.Holders(nodes, namespace, used), used, o.noHolders(v, nodes, namespace))
	})
	cmd.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "claims of all namespaces")
	return cmd
}

// noHolders returns the sentence for a namespace whose claims hold nothing on the nodes.
func (o *options) noHolders(v *view, nodes []fleet.Node, namespace string) string {
	where := ""
	if len(nodes) < len(v.Nodes()) {
		where = " on these nodes"
	}
	switch others := len(v.Holders(nodes, metav1.NamespaceAll, nil)) > 0; {
	case namespace == metav1.NamespaceAll && v.Refused[doctor.Claims] != "":
		return "no claim that you may list holds a device" + where
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

func (o *options) printHolders(all []rows.Holder, used rows.Uses, empty string) error {
	return printList(o, "HolderList", all, rows.HolderTable(all, used, time.Now()), empty)
}

func (o *options) newUsage() *cobra.Command {
	cmd := o.newRows("usage", "The GPUs, memory and compute that are promised to each namespace, and for how long", `  # The namespaces, those with the fewest GPUs first
  kubectl gpu usage --sort-by gpus`, func(v *view, nodes []fleet.Node, used rows.Uses) error {
		o.printAgentProblems(v)
		usages := rows.Usages(nodes, time.Now(), used)
		if err := printList(o, "UsageList", usages, rows.UsageTable(usages, used), o.noHolders(v, nodes, metav1.NamespaceAll)); err != nil || !o.isTable() {
			return err
		}
		return o.printFleet(nodes, rows.Total(usages).GPUs)
	})
	cmd.Args = cobra.NoArgs
	return cmd
}

// printFleet prints the number of GPUs, how many of them are not promised, and what is stranded. Of a GPU that its
// node does not publish, only a claim for the whole GPU has a known part, so none counts as idle.
func (o *options) printFleet(nodes []fleet.Node, promised float64) error {
	gpus, unpublished, memory, slices := 0, 0, resource.Quantity{}, int64(0)
	for _, node := range nodes {
		gpus += len(node.GPUs)
		for _, g := range node.GPUs {
			memory.Add(g.Stranded.Memory)
			slices += g.Stranded.Slices
			if g.Memory.Total.IsZero() {
				unpublished++
				if g.Mode != fleet.ModeWhole {
					promised++
				}
			}
		}
	}
	stranded := rows.Gibibytes(memory) + " of memory"
	if slices > 0 {
		stranded += " and " + fleet.Number(int(slices), "compute slice")
	}
	idle := rows.Tenths(max(0, float64(gpus)-promised)) + " idle, " + stranded + " stranded"
	if o.partial {
		idle = "the rest idle, or of claims that you may not read"
	}
	if unpublished > 0 {
		idle += fmt.Sprintf(", %d not published", unpublished)
	}
	_, err := fmt.Fprintf(o.Out, "\n%s, %s\n", fleet.Number(gpus, "GPU"), idle)
	return err
}

func (o *options) newFree() *cobra.Command {
	var memory string
	cmd := &cobra.Command{
		Use: "free [CLASS...]",
		Example: `  # Whole GPUs, and shares with 20Gi each
  kubectl gpu free gpu.nvidia.com mps.nvidia.com --memory 20Gi`,
		Short: "The number of further claims of each DeviceClass that fit, by node",
		Long: "For each class, the number of further claims for one device that fit, one after the other,\n" +
			"by the scheduler's own allocator. Claims of classes of shares have the memory of --memory.",
		RunE: func(cmd *cobra.Command, classes []string) error {
			if _, err := resource.ParseQuantity(memory); err != nil {
				return fmt.Errorf("--memory %s: %w: want an amount such as 10Gi", memory, gpu.ErrInvalid)
			}
			v, err := o.readWithSlices(cmd.Context(), doctor.Classes)
			if err != nil {
				return err
			}
			if err := o.addAgents(cmd.Context(), v); err != nil {
				return err
			}
			if err := checkNames("class", classes, fleet.Each(v.Objects.Classes, (*resourceapi.DeviceClass).GetName), "kubectl get deviceclasses lists the classes"); err != nil {
				return err
			}
			isSelected, err := o.nodeSelector(v)
			if err != nil {
				return err
			}
			o.printAgentProblems(v)
			all, err := v.FreeOf(cmd.Context(), classes, memory)
			if all == nil {
				return err
			}
			if err != nil {
				fmt.Fprintln(o.ErrOut, "not known: class", strings.ReplaceAll(err.Error(), "\n", "\nnot known: class ")) //nolint:errcheck // there is no other place to say so
			}
			return o.printFree(slices.DeleteFunc(all, func(f rows.Free) bool { return f.Node != "" && !isSelected(f.Node) }))
		},
	}
	cmd.Flags().StringVar(&memory, "memory", "10Gi", "memory of each share")
	o.rowFlags(cmd.Flags())
	return cmd
}

// printAgentProblems prints the nodes on which no agent is ready. Their slices can be old.
func (o *options) printAgentProblems(v *view) {
	if v.NoAgents() {
		fmt.Fprintln(o.ErrOut, noAgentFound(o.driver)) //nolint:errcheck // there is no other place to say so
	}
	for _, sentence := range v.AgentProblems(time.Now()) {
		fmt.Fprintln(o.ErrOut, sentence) //nolint:errcheck // there is no other place to say so
	}
}

func (o *options) printFree(all []rows.Free) error {
	t := rows.Table{Heading: []string{"CLASS", "MEMORY", "NODE", "CLAIMS"}}
	for _, r := range all {
		t.Rows = append(t.Rows, []string{r.Class, r.MemoryText(), rows.OrDash(r.Node), r.ClaimsText()})
	}
	return printList(o, "FreeList", all, t, "no claim of these classes fits on any node"+o.ofSelector()+": kubectl gpu shows the holders' amounts, and kubectl gpu explain the reasons for a pod")
}

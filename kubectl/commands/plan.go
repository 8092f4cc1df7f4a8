// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// planResult is where pods would run, in JSON and YAML.
type planResult struct {
	Workloads []planItem `json:"workloads"`
	// GPUs of the nodes, how many claims hold now, and how many with these pods.
	GPUs int `json:"gpus"`
	// Partial is true if claims and pods that the user may not read need some of the GPUs.
	Partial    bool `json:"partial,omitempty"`
	HeldBefore int  `json:"gpusHeldBefore"`
	HeldAfter  int  `json:"gpusHeldAfter"`
}

// planObject is a plan in JSON and YAML.
type planObject struct {
	header
	*planResult
}

// planItem is a number of pods alike.
type planItem struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`
	Pods      int    `json:"pods"`
	Fit       int    `json:"fit"`
	// Nodes has the number of pods on each node.
	Nodes map[string]int `json:"nodes,omitempty"`
	// Pending is why the other pods do not fit, and PendingCode the code of the reason.
	Pending     string `json:"pending,omitempty"`
	PendingCode string `json:"pendingCode,omitempty"`
}

// planOptions are the flags of the command.
type planOptions struct {
	files        []string
	nodes        int
	model, offer string
}

func (o *options) newPlan() *cobra.Command {
	p := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan -f MANIFESTS",
		Short: "Whether the pods of manifests would fit, now, or on empty nodes of a model",
		Long: "Places the pods of manifests one after the other, each on the first node on which it fits, in\n" +
			"order of the nodes' names. The scheduler may choose other nodes. It creates nothing.\n" +
			"The exit status is 2 if a pod does not fit.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.validate(); err != nil {
				return err
			}
			r, err := o.plan(cmd.Context(), p)
			if err != nil {
				return err
			}
			return cmp.Or(o.printPlan(r), r.status())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&p.files, "filename", "f", nil, "files and folders with manifests; - for standard input")
	flags.IntVar(&p.nodes, "nodes", 0, "plan for so many nodes of a model, empty, instead of those of the cluster")
	flags.StringVar(&p.model, "model", "", "model of the nodes: "+strings.Join(modelNames(), ", "))
	flags.StringVar(&p.offer, "offer", "share", "offer of nodes of a model, as the label "+v1alpha1.LabelOffer)
	// The error is for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("model", cobra.FixedCompletions(modelNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (p *planOptions) validate() error {
	switch {
	case len(p.files) == 0:
		return fmt.Errorf("plan: %w: want --filename", gpu.ErrInvalid)
	case p.nodes < 0 || (p.nodes > 0) != (p.model != ""):
		return fmt.Errorf("--nodes, --model: %w: want a positive number of nodes and their model, or neither", gpu.ErrInvalid)
	}
	return nil
}

// plan returns the plan that the flags request.
func (o *options) plan(ctx context.Context, p *planOptions) (*planResult, error) {
	v, err := o.read(ctx, doctor.Classes)
	offline := err != nil && p.model != ""
	if offline {
		fmt.Fprintf(o.ErrOut, "Planned without a cluster, with the DeviceClasses and templates of the manifests only: %v\n", unreachable(err)) //nolint:errcheck // there is no other place to say so
		namespace, _, _ := o.config.Namespace()                                                                                                // "default" without a configuration
		v = &view{Cluster: rows.New(fleet.Objects{}, o.driver, nil), reader: reader{namespace: namespace}}
	} else if err != nil {
		return nil, err
	}
	m, err := readManifests(p.files, o.In, v.namespace)
	if err != nil {
		return nil, err
	}
	if !offline {
		if err := m.addTemplates(ctx, v.client); err != nil {
			return nil, err
		}
	}
	if len(m.workloads) == 0 {
		return nil, fmt.Errorf("plan: %w: there are no pods, deployments, jobs or other workloads", gpu.ErrNotFound)
	}
	objects, err := p.target(v.Objects, m, o.driver)
	if err != nil {
		return nil, err
	}
	cluster := rows.New(objects, o.driver, nil)
	result, err := m.place(ctx, cluster)
	if err != nil {
		return nil, err
	}
	result.Partial = o.partial && p.nodes == 0
	return result, nil
}

// target returns the objects of the cluster for which the plan is.
func (p *planOptions) target(objects fleet.Objects, m *manifests, driver string) (fleet.Objects, error) {
	replaced := func(class *resourceapi.DeviceClass) bool {
		return slices.ContainsFunc(m.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == class.Name })
	}
	objects.Classes = append(slices.DeleteFunc(slices.Clone(objects.Classes), replaced), m.Classes...)
	objects.Slices, objects.Nodes = slices.Concat(objects.Slices, m.Slices), slices.Concat(objects.Nodes, m.Nodes)
	if p.nodes == 0 {
		return objects, nil
	}
	node, err := modelNode(p.model, p.offer, driver)
	if err != nil {
		return objects, err
	}
	objects.Nodes, objects.Slices, objects.Claims, objects.Pods, objects.TaintRules = nil, nil, nil, nil, nil
	for i := range p.nodes {
		name := fmt.Sprintf("%s-%04d", p.model, i)
		objects.Nodes = append(objects.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for _, slice := range node.Slices {
			slice = slice.DeepCopy()
			slice.Name, slice.Spec.NodeName, slice.Spec.Pool.Name = fmt.Sprintf("%s-%04d", slice.Name, i), &name, name
			objects.Slices = append(objects.Slices, slice)
		}
	}
	return objects, nil
}

// place places the pods of the workloads on the cluster.
func (m *manifests) place(ctx context.Context, c *rows.Cluster) (*planResult, error) {
	p := c.NewPlan()
	result := &planResult{Workloads: []planItem{}}
	result.GPUs, result.HeldBefore = held(c.Fleet)
	// Claims that several pods name are allocated once.
	named := map[types.NamespacedName]*resourceapi.ResourceClaim{}
	for _, claim := range slices.Concat(c.Objects.Claims, m.Claims) {
		named[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim.DeepCopy()
	}
	var waiting []func() error
	for i, w := range m.workloads {
		item, waits := planItem{Namespace: w.Namespace, Workload: w.String(), Nodes: map[string]int{}}, false
		pods := w.pods(c.Fleet)
		item.Pods = len(pods)
		for _, pod := range pods {
			claims, missing := m.claims(c, pod, named)
			node := ""
			if missing == "" {
				var err error
				if node, err = p.Place(ctx, pod, claims...); err != nil {
					return nil, err
				}
			}
			switch {
			case node != "":
				item.Fit++
				item.Nodes[node]++
			case waits:
			case missing != "":
				item.Pending, item.PendingCode, waits = missing, rows.CodeClaimNotCreated, true
			default:
				waits = true
				waiting = append(waiting, func() error {
					verdicts, err := p.Verdicts(ctx, pod, claims...)
					result.Workloads[i].Pending, result.Workloads[i].PendingCode = pendingReason(c, verdicts)
					return err
				})
			}
		}
		result.Workloads = append(result.Workloads, item)
	}
	// With all pods placed, the reason is the same for all pods of a shape.
	for _, explain := range waiting {
		if err := explain(); err != nil {
			return nil, err
		}
	}
	_, result.HeldAfter = held(p.Fleet())
	return result, nil
}

// pendingReason returns the reason of the nearest miss, and its code.
func pendingReason(c *rows.Cluster, verdicts []fleet.Verdict) (text, code string) {
	if len(verdicts) == 0 {
		return "there are no nodes", rows.CodeNoNode
	}
	code, text = c.Missing(verdicts[0])
	return fmt.Sprintf("node %s: %s", verdicts[0].Node, text), code
}

// held returns the number of GPUs, and the number of GPUs that claims hold.
func held(f *fleet.Fleet) (all, used int) {
	for _, node := range f.Nodes() {
		for _, g := range node.GPUs {
			all++
			if g.Mode != fleet.ModeFree {
				used++
			}
		}
	}
	return all, used
}

// pods returns the number of pods, and how many of them fit.
func (r *planResult) pods() (all, fit int) {
	for _, item := range r.Workloads {
		all, fit = all+item.Pods, fit+item.Fit
	}
	return all, fit
}

// status returns exit status 2 if a pod does not fit; nil otherwise.
func (r *planResult) status() error {
	if all, fit := r.pods(); fit < all {
		return exitStatus(2)
	}
	return nil
}

func (o *options) printPlan(r *planResult) error {
	if o.output != "" && o.output != "wide" {
		var names []string
		for _, item := range r.Workloads {
			names = append(names, item.Workload)
		}
		return o.printObject(planObject{headerOf("Plan"), r}, names...)
	}
	t := table{heading: []string{"NAMESPACE", "WORKLOAD", "PODS", "FIT", "NODES"}}
	var b strings.Builder
	for _, item := range r.Workloads {
		var nodes []string
		for _, node := range slices.Sorted(maps.Keys(item.Nodes)) {
			nodes = append(nodes, fmt.Sprintf("%s (%d)", node, item.Nodes[node]))
		}
		t.rows = append(t.rows, []string{item.Namespace, item.Workload, fmt.Sprint(item.Pods), fmt.Sprint(item.Fit), rows.OrDash(rows.List(nodes))})
		if pending := item.Pods - item.Fit; pending > 0 {
			verb := "stay"
			if pending == 1 {
				verb = "stays"
			}
			fmt.Fprintf(&b, "%s: %d of %s %s Pending: %s\n", item.Workload, pending, fleet.Number(item.Pods, "pod"), verb, item.Pending)
		}
	}
	if err := o.print(r, t); err != nil {
		return err
	}
	all, fit := r.pods()
	partial := ""
	if r.Partial {
		partial = ", or fewer: you may not read all claims and pods"
	}
	_, err := fmt.Fprintf(o.Out, "\nGPUs in use: %d of %d, before: %d\n%s%d of %s fit%s\n", r.HeldAfter, r.GPUs, r.HeldBefore, b.String(), fit, fleet.Number(all, "pod"), partial)
	return err
}

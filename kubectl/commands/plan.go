// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"fmt"
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

// planObject is whether pods would fit, in JSON and YAML.
type planObject struct {
	rows.Header
	Workloads []planItem `json:"workloads"`
	// GPUs of the nodes, how many claims hold now, and how many with these pods.
	GPUs int `json:"gpus"`
	// Partial is true if claims and pods that the user may not read need some of the GPUs.
	Partial    bool `json:"partial,omitempty"`
	HeldBefore int  `json:"gpusHeldBefore"`
	HeldAfter  int  `json:"gpusHeldAfter"`
}

// planItem is a number of pods alike.
type planItem struct {
	Namespace string `json:"namespace"`
	Workload  string `json:"workload"`
	Pods      int    `json:"pods"`
	Fit       int    `json:"fit"`
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
		Use: "plan -f MANIFESTS",
		Example: `  # Whether the pods of a manifest fit now, and on twenty nodes of a model
  kubectl gpu plan -f training.yaml
  kubectl gpu plan -f training.yaml --nodes 20 --model dgx-h100 --offer share`,
		Short: "Whether the pods of manifests would fit, now, or on empty nodes of a model",
		Long: "Places the pods of manifests one after the other, each on the first node on which it fits, in\n" +
			"order of the nodes' names. The scheduler may choose other nodes. It creates nothing.\n" +
			"The exit status is 2 if a pod does not fit.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(p.files) == 0:
				return fmt.Errorf("plan: %w: want --filename", gpu.ErrInvalid)
			case p.nodes < 0 || (p.nodes > 0) != (p.model != ""):
				return fmt.Errorf("--nodes, --model: %w: want a positive number of nodes and their model, or neither", gpu.ErrInvalid)
			}
			result, err := o.plan(cmd.Context(), p)
			if err != nil {
				return err
			}
			return o.printPlan(result)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&p.files, "filename", "f", nil, "files and folders with manifests; - for standard input")
	flags.IntVar(&p.nodes, "nodes", 0, "plan for so many nodes of a model, empty, instead of those of the cluster")
	flags.StringVar(&p.model, "model", "", "model of the nodes: "+strings.Join(modelNames(), ", "))
	flags.StringVar(&p.offer, "offer", "share", "offer of nodes of a model, as the label "+v1alpha1.LabelOffer)
	return cmd
}

// plan returns the plan that the flags request.
func (o *options) plan(ctx context.Context, p *planOptions) (*planObject, error) {
	v, err := o.readWithSlices(ctx, doctor.Classes)
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
	objects := v.Objects
	if p.nodes > 0 {
		if objects, err = modelNodes(p.nodes, p.model, p.offer, o.driver); err != nil {
			return nil, err
		}
	}
	isReplaced := func(class *resourceapi.DeviceClass) bool {
		return slices.ContainsFunc(m.classes, func(c *resourceapi.DeviceClass) bool { return c.Name == class.Name })
	}
	objects.Classes = append(slices.DeleteFunc(slices.Clone(v.Objects.Classes), isReplaced), m.classes...)
	result, err := m.place(ctx, rows.New(objects, o.driver, nil))
	if err != nil {
		return nil, err
	}
	result.Partial = o.partial && p.nodes == 0
	return result, nil
}

// place places the pods of the workloads on the cluster.
func (m *manifests) place(ctx context.Context, c *rows.Cluster) (*planObject, error) {
	p := c.NewPlan()
	result := &planObject{Header: rows.HeaderOf("Plan"), Workloads: []planItem{}}
	result.GPUs, result.HeldBefore = held(c.Fleet)
	// Claims that several pods name are allocated once.
	named := m.named(c)
	var waiting []func() error
	for i, w := range m.workloads {
		pods := w.pods(c.Fleet)
		item := planItem{Namespace: w.Namespace, Workload: w.String(), Pods: len(pods)}
		waits := false
		for _, pod := range pods {
			claims, missing := m.claimsOf(c, pod, named)
			if missing == "" {
				node, err := p.Place(ctx, pod, claims...)
				if err != nil {
					return nil, err
				}
				if node != "" {
					item.Fit++
					continue
				}
			}
			if waits {
				continue
			}
			waits = true
			if missing != "" {
				item.Pending, item.PendingCode = missing, rows.CodeClaimNotCreated
				continue
			}
			waiting = append(waiting, func() error {
				verdicts, err := p.Fleet().NewSearch(0).Verdicts(ctx, pod, claims...)
				result.Workloads[i].Pending, result.Workloads[i].PendingCode = pendingReason(c, verdicts)
				return err
			})
		}
		result.Workloads = append(result.Workloads, item)
	}
	// The reason is the one with all pods placed.
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

// pods returns the pods of a workload.
func (w workload) pods(f *fleet.Fleet) []*corev1.Pod {
	one := func(name string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name, UID: types.UID(w.String() + name)}, Spec: *w.Spec.DeepCopy()}
		pod.Spec.NodeName = ""
		return pod
	}
	var all []*corev1.Pod
	switch w.Kind {
	case "pod":
		return []*corev1.Pod{one(w.Name)}
	case "daemonset":
		for _, node := range f.NodeNames() {
			pod := one(w.Name + "-" + node)
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
			// The controller of DaemonSets creates a pod also for a node that has too little free.
			if len(f.ExcludesForGood(node, pod)) == 0 {
				pin(pod, node)
				all = append(all, pod)
			}
		}
	default:
		for i := range w.Pods {
			all = append(all, one(fmt.Sprintf("%s-%d", w.Name, i)))
		}
	}
	return all
}

// pin restricts a pod to a node, as the controller of DaemonSets does.
func pin(pod *corev1.Pod, node string) {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}
}

// named returns copies of the claims of the cluster and of the manifests, by their names.
func (m *manifests) named(c *rows.Cluster) map[types.NamespacedName]*resourceapi.ResourceClaim {
	named := map[types.NamespacedName]*resourceapi.ResourceClaim{}
	for _, claim := range slices.Concat(c.Objects.Claims, m.claims) {
		named[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim.DeepCopy()
	}
	return named
}

// claimsOf returns the claims of a pod, and a sentence if one is missing.
func (m *manifests) claimsOf(c *rows.Cluster, pod *corev1.Pod, named map[types.NamespacedName]*resourceapi.ResourceClaim) (claims []*resourceapi.ResourceClaim, missing string) {
	for _, entry := range pod.Spec.ResourceClaims {
		switch {
		case entry.ResourceClaimName != nil:
			claim := named[types.NamespacedName{Namespace: pod.Namespace, Name: *entry.ResourceClaimName}]
			if claim == nil {
				return nil, fmt.Sprintf("claim %s does not exist", *entry.ResourceClaimName)
			}
			claims = append(claims, claim)
		case entry.ResourceClaimTemplateName != nil:
			template := m.template(pod.Namespace, *entry.ResourceClaimTemplateName)
			if template == nil {
				return nil, fmt.Sprintf("claim template %s does not exist", *entry.ResourceClaimTemplateName)
			}
			claims = append(claims, &resourceapi.ResourceClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-" + entry.Name, UID: pod.UID + types.UID("/"+entry.Name)},
				Spec:       *template.Spec.Spec.DeepCopy(),
			})
		}
	}
	if extended := c.ExtendedClaim(pod); extended != nil {
		extended.UID = pod.UID
		claims = append(claims, extended)
	}
	if classes := c.MissingClasses(claims); classes != nil {
		return nil, classes[0]
	}
	return claims, ""
}

// printPlan prints the result. It returns exit status 2 if a pod does not fit.
func (o *options) printPlan(r *planObject) error {
	all, fit := 0, 0
	var status error
	for _, item := range r.Workloads {
		all, fit = all+item.Pods, fit+item.Fit
	}
	if fit < all {
		status = exitStatus(2)
	}
	if !o.isTable() {
		return cmp.Or(o.printValue(r), status)
	}
	var b strings.Builder
	for _, item := range r.Workloads {
		if pending := item.Pods - item.Fit; pending > 0 {
			fmt.Fprintf(&b, "%s: %d of %s %s Pending: %s\n", item.Workload, pending, fleet.Number(item.Pods, "pod"), map[bool]string{true: "stays", false: "stay"}[pending == 1], item.Pending)
		}
	}
	partial := ""
	if r.Partial {
		partial = ", or fewer: you may not read all claims and pods"
	}
	_, err := fmt.Fprintf(o.Out, "%sGPUs in use: %d of %d, before: %d\n%d of %s fit%s\n", b.String(), r.HeldAfter, r.GPUs, r.HeldBefore, fit, fleet.Number(all, "pod"), partial)
	return cmp.Or(err, status)
}

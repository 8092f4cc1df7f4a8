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
	policyv1 "k8s.io/api/policy/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/evict"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// room makes room for a pod.
type room struct {
	*verb
	cordon.Options
	rules  fleet.RoomRules
	file   string
	evicts bool
	// defragments finds moves for all pods that wait.
	defragments bool
	limit       time.Duration
	timeout     time.Duration
}

func (o *options) newRoom() *cobra.Command {
	r := &room{}
	var dryRun string
	cmd := &cobra.Command{
		Use: "room POD | -f MANIFEST | --defragment [NODE]",
		Example: `  # Which pods must end so that the pod train runs
  kubectl gpu room train -n team-a

  # End them, and wait until train has its node
  kubectl gpu room train -n team-a --evict

  # Which pods must move so that the pods that wait run
  kubectl gpu room --defragment`,
		Short: "The fewest pods whose end lets a pod run, and their eviction",
		Long: "Finds the fewest pods of a lower priority whose end lets a waiting pod run, proven by the scheduler's own\n" +
			"allocator: of several sets the one of the lowest priority, then the youngest. PodDisruptionBudgets, groups of pods and\n" +
			"the other resources of the node are respected. It changes nothing without --evict.\n" +
			"With --defragment, it finds the fewest pods that have another place, of any priority, whose move lets the waiting pods\n" +
			"run; with NODE, only pods of that node. It changes nothing.\n" +
			"The exit status is 2 if no pods suffice.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case dryRun != "none" && dryRun != "client":
				return fmt.Errorf("--dry-run %s: %w: want none or client", dryRun, gpu.ErrInvalid)
			case r.defragments:
				if err := checkDefragment(cmd); err != nil {
					return err
				}
			case (len(args) == 1) == (r.file != ""):
				return fmt.Errorf("room: %w: want a pod, or --filename", gpu.ErrInvalid)
			case r.evicts && (r.file != "" || !o.isTable()):
				return fmt.Errorf("--evict: %w: it is for a pod of the cluster, and prints its steps only", gpu.ErrInvalid)
			}
			reader, err := o.dial()
			if err != nil {
				return err
			}
			own := *r
			own.verb = &verb{options: o, reader: reader, dryRun: dryRun == "client"}
			if r.defragments {
				return own.defragment(cmd.Context(), strings.Join(args, ""))
			}
			return own.run(cmd.Context(), strings.TrimPrefix(strings.Join(args, ""), "pod/"))
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&r.file, "filename", "f", "", "file with one workload, of which a pod is not yet created; - for standard input")
	flags.BoolVar(&r.rules.AnyPriority, "any-priority", false, "end also pods of the same or a higher priority, and for a pod with preemptionPolicy Never")
	flags.BoolVar(&r.defragments, "defragment", false, "for all pods that wait, the fewest pods to move elsewhere, and where")
	flags.DurationVar(&r.limit, "limit", 20*time.Second, "time for the search")
	flags.BoolVar(&r.evicts, "evict", false, "evict the pods, and wait until the pod has its node")
	flags.BoolVar(&r.Force, "force", false, "evict also pods that no controller creates again")
	flags.BoolVar(&r.DeleteEmptyDirData, "delete-emptydir-data", false, "evict also pods with emptyDir volumes, whose data are lost")
	flags.DurationVar(&r.timeout, "timeout", 2*time.Minute, "time to wait before --evict gives up, during which the devices are kept for the pod")
	flags.StringVar(&dryRun, "dry-run", "none", "none, or client to print the steps of --evict and change nothing")
	flags.Lookup("dry-run").NoOptDefVal = "client"
	return cmd
}

func (r *room) run(ctx context.Context, name string) error {
	cluster, err := r.readWhole(ctx, lists.All...)
	if err != nil {
		return err
	}
	if r.rules.Budgets, err = readBudgets(ctx, r.client); err != nil {
		return err
	}
	pod, claims, missing := (*corev1.Pod)(nil), []*resourceapi.ResourceClaim(nil), ""
	if r.file != "" {
		pod, claims, missing, err = r.planned(ctx, cluster)
	} else if pod, err = r.podOf(cluster, name); err == nil {
		var all []string
		claims, all = cluster.ClaimsOf(pod)
		missing = strings.Join(all, "; ")
	}
	if err != nil {
		return err
	}
	if left := cordon.LeftRooms(cluster.Objects.TaintRules, time.Now()); r.evicts && !r.dryRun && len(left) > 0 {
		if err := r.requests(-1).Remove(ctx, left); err != nil {
			return err
		}
		r.say("removed what an earlier run had left (DeviceTaintRules: %d)", len(left))
		if cluster, err = r.readWhole(ctx, lists.All...); err != nil {
			return err
		}
	}
	isFor := func(rule *resourceapi.DeviceTaintRule) bool {
		return rule.Labels[v1alpha1.LabelRoom] == string(pod.UID)
	}
	if kept := fleet.First(cluster.Objects.TaintRules, isFor); r.evicts && !r.dryRun && kept != nil {
		return fmt.Errorf("room for pod %s: %w: another run keeps devices for it until %s", fleet.FullName(pod), gpu.ErrInUse, kept.Annotations[v1alpha1.AnnotationRoomUntil])
	}
	answer := rows.Room{Header: rows.HeaderOf("Room"), Namespace: pod.Namespace, Pod: pod.Name, Outcome: rows.RoomNone, Reason: missing}
	if missing == "" {
		if answer, err = cluster.Room(ctx, cluster.NewSearch(r.limit), pod, r.rules, claims...); err != nil {
			return err
		}
	}
	if answer.Outcome == rows.RoomFound && r.evicts {
		return r.make(ctx, cluster, pod, claims, answer)
	}
	sections := answer.Sections()
	if answer.Outcome == rows.RoomFound && r.file == "" {
		sections = append(sections, rows.Section{Heading: "What to do", Lines: []string{fmt.Sprintf("kubectl gpu room %s --namespace %s --evict", answer.Pod, answer.Namespace)}})
	}
	err = r.printSections(answer, sections)
	if answer.Outcome == rows.RoomNone {
		return cmp.Or(err, error(exitStatus(2)))
	}
	return err
}

// readBudgets reads the PodDisruptionBudgets of the cluster.
func readBudgets(ctx context.Context, client kubernetes.Interface) ([]*policyv1.PodDisruptionBudget, error) {
	var all []*policyv1.PodDisruptionBudget
	if err := lists.Into(ctx, &all, lists.Of(client.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List)); err != nil {
		return nil, failed("list poddisruptionbudgets", err)
	}
	return all, nil
}

func (r *room) podOf(c *rows.Cluster, name string) (*corev1.Pod, error) {
	pod, _ := c.Find(rows.Question{Namespace: r.namespace, Name: name})
	if pod == nil {
		return nil, fmt.Errorf("pod %s/%s: %w", r.namespace, name, gpu.ErrNotFound)
	}
	return pod, nil
}

// planned returns a pod of the workload in the file, with its claims.
func (r *room) planned(ctx context.Context, c *rows.Cluster) (*corev1.Pod, []*resourceapi.ResourceClaim, string, error) {
	m, err := readManifests([]string{r.file}, r.In, r.namespace)
	if err != nil {
		return nil, nil, "", err
	}
	if len(m.workloads) != 1 {
		return nil, nil, "", fmt.Errorf("%s: %w: it has %s, want 1", r.file, gpu.ErrInvalid, fleet.Number(len(m.workloads), "workload"))
	}
	if err := m.addTemplates(ctx, r.client); err != nil {
		return nil, nil, "", err
	}
	pods := m.workloads[0].pods(c.Fleet)
	if len(pods) == 0 {
		return nil, nil, "", fmt.Errorf("%s: %w: it has no pods", r.file, gpu.ErrInvalid)
	}
	claims, missing := m.claimsOf(c, pods[0], m.named(c))
	return pods[0], claims, missing, r.setPriority(ctx, pods[0])
}

// setPriority sets the priority of a pod as the API server does.
func (r *room) setPriority(ctx context.Context, pod *corev1.Pod) error {
	var classes []*schedulingv1.PriorityClass
	if err := lists.Into(ctx, &classes, lists.Of(r.client.SchedulingV1().PriorityClasses().List)); err != nil {
		return failed("list priorityclasses.scheduling.k8s.io", err)
	}
	class := fleet.First(classes, func(c *schedulingv1.PriorityClass) bool {
		return c.Name == pod.Spec.PriorityClassName || pod.Spec.PriorityClassName == "" && c.GlobalDefault
	})
	switch {
	case class != nil:
		pod.Spec.Priority = &class.Value
		pod.Spec.PreemptionPolicy = cmp.Or(pod.Spec.PreemptionPolicy, class.PreemptionPolicy)
	case pod.Spec.PriorityClassName != "":
		return fmt.Errorf("PriorityClass %s: %w", pod.Spec.PriorityClassName, gpu.ErrNotFound)
	}
	return nil
}

// make evicts the pods of the answer, and waits until the pod has its node.
func (r *room) make(ctx context.Context, c *rows.Cluster, pod *corev1.Pod, claims []*resourceapi.ResourceClaim, answer rows.Room) error {
	found := answer.Found
	var refused []string
	for _, p := range found.Pods {
		if fate, why := cordon.FateOf(p, r.Options); fate == cordon.Refuse {
			refused = append(refused, withReason(cordon.Pod{Pod: p, Reason: why}))
		}
	}
	subject := fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)
	if len(refused) > 0 {
		return fmt.Errorf("room for %s: %w: nothing is changed: %s", subject, gpu.ErrInUse, strings.Join(refused, "; "))
	}
	for _, section := range answer.Sections() {
		r.say("%s", section.Heading)
		for _, line := range section.Lines {
			r.say("  %s", line)
		}
	}
	kept := cordon.NewRoom(cordon.Command, pod, claims, found.Allocations, c.Nodes(), time.Now().Add(r.timeout))
	if len(kept) == 0 {
		r.say("the devices are not kept for %s, whose claims do not tolerate the taint %s: it gets them first only if its priority is the highest of all pods that wait", subject, v1alpha1.TaintRoom)
	} else {
		r.say("keep %s of node %s for %s: taint %s", rows.List(fleet.Each(kept, cordon.DeviceOf)), answer.Node, subject, v1alpha1.TaintRoom)
	}
	if r.dryRun {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("%w after %s (--timeout)", gpu.ErrTimeout, r.timeout))
	defer cancel()
	return r.requests(-1).MakeRoom(limited, evict.Room{Pod: pod, Found: found, Kept: kept})
}

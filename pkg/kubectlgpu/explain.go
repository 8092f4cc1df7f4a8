// SPDX-License-Identifier: Apache-2.0

package kubectlgpu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/kubectlgpu/internal/plain"
)

// explanation is why a pod or claim has its devices, or why not, in JSON and YAML.
type explanation struct {
	Subject string `json:"subject"`
	// Facts are from the pod and its claims, a sentence each.
	Facts []string `json:"facts,omitempty"`
	// Nodes on which the claims fit.
	Fits []string `json:"fits,omitempty"`
	// Misses are the nodes on which they do not fit, the nearest first; not all of them.
	Misses []missItem `json:"misses,omitempty"`
	// Other is the number of further nodes.
	Other int `json:"otherNodes,omitempty"`
	// NotExamined are the nodes that the limit of the search left out.
	NotExamined []string `json:"notExaminedNodes,omitempty"`
	// Excluded are the nodes on which the pod cannot run for reasons apart from devices.
	Excluded []excludedItem `json:"excludedNodes,omitempty"`
	// Advice is a remedy, a sentence each.
	Advice []string `json:"advice,omitempty"`
}

type excludedItem struct {
	Node    string   `json:"node"`
	Reasons []string `json:"reasons"`
}

// missItem is a node on which claims do not fit.
type missItem struct {
	Node     string        `json:"node"`
	Missing  string        `json:"missing"`
	Requests []requestItem `json:"requests,omitempty"`
}

// requestItem is a request of a claim, and the check of a node's devices for it.
type requestItem struct {
	Claim   string       `json:"claim"`
	Request string       `json:"request"`
	Wanted  int64        `json:"wanted"`
	Meeting int          `json:"meeting"`
	Devices []deviceItem `json:"devices,omitempty"`
	// OtherClasses is the number of devices that are not of the request's class.
	OtherClasses int `json:"otherClasses,omitempty"`
	// OtherDevices is the number of devices of the class that are left out of Devices.
	OtherDevices int `json:"otherDevices,omitempty"`
	// NotExamined is the number of devices that the limit of the search left out.
	NotExamined int `json:"notExamined,omitempty"`
}

type deviceItem struct {
	Device  string   `json:"device"`
	Reasons []string `json:"reasons"`
}

func (o *options) newExplain() *cobra.Command {
	var most int
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "explain POD | claim/CLAIM",
		Short: "Why a pod or claim does not get its devices, node by node and device by device, and what to change",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := o.read(cmd.Context(), classList)
			if err != nil {
				return err
			}
			e, pod, err := explain(cmd.Context(), v.NewSearch(limit), v.objects, v.namespace, args[0], most)
			if err != nil {
				return err
			}
			if pod != nil {
				if err := e.addEvents(cmd.Context(), v.client, pod); err != nil {
					return err
				}
			}
			if o.output != "" && o.output != "wide" {
				return o.print(e, table{})
			}
			_, err = o.Out.Write([]byte(e.text()))
			return err
		},
	}
	cmd.Flags().IntVar(&most, "nodes", 3, "number of nodes that are explained device by device")
	cmd.Flags().DurationVar(&limit, "limit", 20*time.Second, "time for the search; nodes and devices beyond it are named as not examined")
	return cmd
}

// explain explains the pod or claim of a namespace that a user names. It returns the pod; nil
// if it is a claim.
func explain(ctx context.Context, s *fleet.Search, objects fleet.Objects, namespace, name string, most int) (explanation, *corev1.Pod, error) {
	claimName, isClaim := strings.CutPrefix(name, "claim/")
	podName := strings.TrimPrefix(name, "pod/")
	i := slices.IndexFunc(objects.Pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == podName })
	claim := findClaim(objects, namespace, claimName)
	switch {
	case i >= 0 && !isClaim:
		e, err := explainPod(ctx, s, objects, objects.Pods[i], most)
		return e, objects.Pods[i], err
	case claim != nil:
		e := explanation{Subject: fmt.Sprintf("claim %s/%s", namespace, claimName)}
		err := e.add(ctx, s, nil, []*resourceapi.ResourceClaim{claim}, most)
		return e, nil, err
	default:
		return explanation{}, nil, fmt.Errorf("%s: %w: no pod and no claim of the namespace %s has this name", name, gpu.ErrNotFound, namespace)
	}
}

func explainPod(ctx context.Context, s *fleet.Search, objects fleet.Objects, pod *corev1.Pod, most int) (explanation, error) {
	e := explanation{Subject: fmt.Sprintf("pod %s/%s", pod.Namespace, pod.Name)}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			e.Facts = append(e.Facts, "scheduler: "+condition.Message)
		}
	}
	if pod.DeletionTimestamp != nil {
		e.Facts = append(e.Facts, fmt.Sprintf("the pod is being deleted since %s; it stays until its containers have ended and the agent of node %s has unprepared its claims",
			pod.DeletionTimestamp.UTC().Format(time.RFC3339), orDash(pod.Spec.NodeName)))
	}
	claims, missing := claimsOf(s.Fleet(), objects, pod)
	e.Facts = append(e.Facts, missing...)
	if len(claims) == 0 && len(missing) == 0 {
		e.Facts = append(e.Facts, "the pod has no claims")
		return e, nil
	}
	if node := pod.Spec.NodeName; pod.Status.Phase == corev1.PodPending && node != "" && objects.HasOtherDriver(s.Fleet().Driver, node, claims...) {
		e.Advice = append(e.Advice, fmt.Sprintf("remove one of the drivers of the name %s from node %s: the kubelet calls only the one that registered last, so the pod may stay in ContainerCreating (docs/migration.md#two-drivers-on-one-node)",
			s.Fleet().Driver, node))
	}
	err := e.add(ctx, s, pod, claims, most)
	return e, err
}

// add explains claims that must fit on one node together. The pod is nil for a claim alone.
func (e *explanation) add(ctx context.Context, s *fleet.Search, pod *corev1.Pod, claims []*resourceapi.ResourceClaim, most int) error {
	var open []*resourceapi.ResourceClaim
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			open = append(open, claim)
			continue
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			e.Facts = append(e.Facts, fmt.Sprintf("claim %s has %s of pool %s", claim.Name, result.Device, result.Pool))
		}
		e.Facts = append(e.Facts, deviceFacts(claim)...)
	}
	if len(open) == 0 {
		return nil
	}
	if missing := missingClasses(s.Fleet(), open); missing != nil {
		e.Advice = append(e.Advice, missing...)
		return nil
	}
	verdicts, err := s.Verdicts(ctx, pod, claims...)
	if err != nil {
		return err
	}
	if len(verdicts) == 0 {
		e.Advice = append(e.Advice, "add a node: the cluster has none, and no devices")
		return nil
	}
	var checks []fleet.RequestCheck
	for _, v := range verdicts {
		switch {
		case v.Fits():
			e.Fits = append(e.Fits, v.Node)
		case v.Excluded != nil:
			e.Excluded = append(e.Excluded, excludedItem{v.Node, v.Excluded})
		case errors.Is(v.Problem, fleet.ErrNotExamined):
			e.NotExamined = append(e.NotExamined, v.Node)
		case len(e.Misses) == most:
			e.Other++
		default:
			miss, found, err := e.miss(ctx, s, v, open)
			if err != nil {
				return err
			}
			checks = append(checks, found...)
			e.Misses = append(e.Misses, miss)
		}
	}
	if len(e.Fits) == 0 {
		names, err := s.ClaimNames(ctx, open)
		if err != nil && !errors.Is(err, fleet.ErrNotExamined) {
			return err
		}
		if err != nil || e.isPartial() {
			e.Advice = append(e.Advice, partialAdvice)
		}
		e.Advice = append(e.Advice, advice(s.Fleet(), verdicts[0], checks)...)
		e.Advice = append(e.Advice, names...)
	}
	return nil
}

// missingClasses returns a sentence for each DeviceClass that does not exist.
func missingClasses(f *fleet.Fleet, claims []*resourceapi.ResourceClaim) []string {
	var all []string
	for _, claim := range claims {
		for _, r := range claim.Spec.Devices.Requests {
			var names []string
			if r.Exactly != nil {
				names = append(names, r.Exactly.DeviceClassName)
			}
			for _, alternative := range r.FirstAvailable {
				names = append(names, alternative.DeviceClassName)
			}
			for _, name := range names {
				if !f.HasClass(name) {
					all = append(all, fmt.Sprintf("create the DeviceClass %s of request %s of claim %s, or name another: kubectl get deviceclasses", name, r.Name, claim.Name))
				}
			}
		}
	}
	return all
}

// deviceFacts returns the conditions of a claim's devices, which drivers report.
func deviceFacts(claim *resourceapi.ResourceClaim) []string {
	var all []string
	for _, status := range claim.Status.Devices {
		for _, condition := range status.Conditions {
			all = append(all, fmt.Sprintf("%s: %s is %s: %s", status.Device, condition.Type, condition.Status, condition.Message))
		}
	}
	return all
}

// mostDevices bounds the devices of a request that are explained on a node.
const mostDevices = 256

// partialAdvice precedes advice that does not rest on all nodes and devices.
const partialAdvice = "not all nodes and devices were examined, so the rest of this advice may be wrong: write simpler selectors or another shape (docs/shapes.md), or search for longer (kubectl gpu explain --limit)"

// isPartial reports whether the explanation is of a part of the nodes or devices.
func (e *explanation) isPartial() bool {
	return len(e.NotExamined) > 0 || slices.ContainsFunc(e.Misses, func(m missItem) bool {
		return slices.ContainsFunc(m.Requests, func(r requestItem) bool { return r.NotExamined > 0 })
	})
}

func (e *explanation) miss(ctx context.Context, s *fleet.Search, v fleet.Verdict, claims []*resourceapi.ResourceClaim) (missItem, []fleet.RequestCheck, error) {
	item := missItem{Node: v.Node, Missing: missingText(v)}
	checks, err := s.Check(ctx, v.Node, claims...)
	if err != nil {
		return item, nil, err
	}
	for _, a := range checks {
		r := requestItem{Claim: claims[a.Claim].Name, Request: a.Request, Wanted: a.Exactly.Count, Meeting: a.Meeting(), NotExamined: a.NotExamined}
		for _, d := range a.Devices {
			switch {
			case slices.Contains(d.Missing, fleet.ConditionClass):
				r.OtherClasses++
			case len(d.Missing) > 0 && len(r.Devices) == mostDevices:
				r.OtherDevices++
			default:
				if reasons := s.Fleet().Reasons(d, a.Exactly); len(reasons) > 0 {
					r.Devices = append(r.Devices, deviceItem{d.Device.ID.Device, reasons})
				}
			}
		}
		item.Requests = append(item.Requests, r)
	}
	return item, checks, nil
}

// missingText returns the reason why claims do not fit on a node.
func missingText(v fleet.Verdict) string {
	if v.Problem != nil {
		return v.Problem.Error()
	}
	if v.Missing == nil {
		return "it has too few devices"
	}
	// Conditions besides the first are dropped to find it.
	switch v.Missing[0] {
	case fleet.ConditionHolders:
		return "other claims hold the devices"
	case fleet.ConditionTaints:
		return "devices have taints"
	case fleet.ConditionConstraints:
		return "no such group of devices meets the constraints of the claim"
	case fleet.ConditionSelectors:
		return "no device meets the selectors"
	case fleet.ConditionSize:
		return "no device is large enough"
	case fleet.ConditionClass:
		return "it has no device of the class"
	case fleet.ConditionPool:
		return "the scheduler refuses the pool of its devices"
	}
	return ""
}

// advice returns remedies for claims that fit on no node, by the nearest miss.
func advice(f *fleet.Fleet, nearest fleet.Verdict, checks []fleet.RequestCheck) []string {
	switch {
	case nearest.Excluded != nil:
		return []string{"change the pod or a node so that the reasons above end, or add nodes: no node admits the pod"}
	case errors.Is(nearest.Problem, gpu.ErrNotReady):
		return []string{"wait until the agent of the node has published its devices"}
	case errors.Is(nearest.Problem, fleet.ErrPoolRefused):
		return poolAdvice()
	case errors.Is(nearest.Problem, fleet.ErrNotExamined):
		return nil
	case nearest.Problem != nil:
		return []string{"write the claim in another shape, or mend its selectors: docs/shapes.md and docs/troubleshooting.md"}
	case nearest.Missing == nil:
		return []string{"request fewer devices: no node has so many"}
	}
	switch nearest.Missing[0] {
	case fleet.ConditionHolders:
		return []string{"wait until one of the claims named above ends, or end it: nothing is preempted for devices, whatever the priority of the pod"}
	case fleet.ConditionTaints:
		return []string{"clear the taint (kubectl gpu get shows it; an unhealthy GPU needs a repair), or tolerate it in the request"}
	case fleet.ConditionConstraints:
		return []string{"request fewer devices, or drop the constraint: kubectl gpu topo NODE shows which devices belong together"}
	case fleet.ConditionSelectors:
		return selectorAdvice(f, checks)
	case fleet.ConditionSize:
		return []string{"request less: no device of the class has so much"}
	case fleet.ConditionClass:
		return []string{"offer such devices on a node (chart value offer, or nodeConfigs), or name another class: kubectl gpu free lists classes with free"}
	case fleet.ConditionPool:
		return poolAdvice()
	}
	return nil
}

func poolAdvice() []string {
	return []string{"have the driver named above publish its devices again, by restarting its pod on the node, and report it to its authors: its ResourceSlices contradict each other"}
}

// selectorAdvice lists the existing values of the names in failing selectors.
func selectorAdvice(f *fleet.Fleet, checks []fleet.RequestCheck) []string {
	all := []string{"change the selector"}
	seen := map[fleet.Name]bool{}
	for _, a := range checks {
		for _, d := range a.Devices {
			for _, i := range d.Selectors {
				for _, name := range fleet.NamesIn(a.Exactly.Selectors[i].CEL.Expression) {
					if seen[name] {
						continue
					}
					seen[name] = true
					values := f.Values(a.Devices, name)
					if len(values) == 0 {
						continue
					}
					var texts []string
					for _, value := range slices.Sorted(maps.Keys(values)) {
						texts = append(texts, fmt.Sprintf("%q (%d devices)", value, values[value]))
					}
					all = append(all, fmt.Sprintf("values of %s on these nodes: %s", name, strings.Join(texts, ", ")))
				}
			}
		}
	}
	return all
}

// text returns the explanation as it is printed. A message cannot add lines to it.
func (e explanation) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", plain.Line(e.Subject))
	for _, fact := range e.Facts {
		fmt.Fprintf(&b, "  %s\n", plain.Line(fact))
	}
	if len(e.Fits) > 0 {
		fmt.Fprintf(&b, "\nThe devices are free on %s.\n", plain.Line(list(e.Fits)))
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
		fmt.Fprintf(&b, "\nNot examined (--limit): %s\n", plain.Line(list(e.NotExamined)))
	}
	// Nodes often have the same reasons.
	nodes := map[string][]string{}
	for _, excluded := range e.Excluded {
		reasons := strings.Join(excluded.Reasons, "; ")
		nodes[reasons] = append(nodes[reasons], excluded.Node)
	}
	for _, reasons := range slices.Sorted(maps.Keys(nodes)) {
		fmt.Fprintf(&b, "\nNot on %s: %s\n", plain.Line(list(nodes[reasons])), plain.Line(reasons))
	}
	if len(e.Advice) > 0 {
		b.WriteString("\nWhat to do\n")
		for _, sentence := range e.Advice {
			fmt.Fprintf(&b, "  %s\n", plain.Line(sentence))
		}
	}
	return b.String()
}

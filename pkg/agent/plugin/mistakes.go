// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/amounts"
)

// mistakeAction is the action of the events about mistakes in claims.
const mistakeAction = "CheckClaim"

// ContainerClaims are the claims that a container of a running pod uses.
type ContainerClaims struct {
	// Namespace of the pod and of the claims.
	Namespace, Pod, Container string
	Claims                    []string
}

// withMistakes adds a condition to the devices for each mistake of the claim's user. Disturbances of
// shares have one too. It creates an event about each condition that the object lacks. all are the
// prepared claims of the round, and containers the ones of running pods.
func (p *Plugin) withMistakes(ctx context.Context, s *claimStatus, n needed, all []needed, containers []ContainerClaims) *claimStatus {
	several := severalShares(n, all, containers)
	var found []condition
	for i := range s.devices {
		d := &s.devices[i]
		var mistakes []condition
		if rounded := roundedUp(n.object, p.driver, *d); rounded != "" {
			mistakes = append(mistakes, condition{kind: v1alpha1.ConditionShareRoundedUp, reason: v1alpha1.ReasonLeastShare, message: rounded})
		}
		if several != "" && isOfMPS(d.data) {
			mistakes = append(mistakes, condition{kind: v1alpha1.ConditionSeveralShares, reason: v1alpha1.ReasonOneMPSDaemon, message: several})
		}
		mistakes = append(mistakes, p.disturbances(n, d.device)...)
		d.more = append(d.more, mistakes...)
		for _, m := range mistakes {
			if !hasCondition(n.object, p.driver, *d, m) {
				found = append(found, m)
			}
		}
	}
	for _, m := range found {
		// The condition is written with a later round if the event fails: it is the record of it.
		if err := p.tell(ctx, n.object, m); err != nil {
			klog.FromContext(ctx).Info("Cannot create an event about a claim, will retry", "claim", klog.KObj(n.object), "reason", m.kind, "err", err)
			s.drop(m)
		}
	}
	return s
}

// tell creates the event about a mistake on the claim and its pods. The name of the event follows
// from its object and its text, so a pod has one about two claims.
func (p *Plugin) tell(ctx context.Context, object *resourceapi.ResourceClaim, m condition) error {
	for _, on := range usersOf(object) {
		if err := p.events.create(ctx, on, eventName(on, "", m.kind+" "+m.message), mistakeAction, corev1.EventTypeWarning, m.kind, sentence(m.message)+"."); err != nil {
			return err
		}
	}
	return nil
}

// drop removes a condition from all devices.
func (s *claimStatus) drop(c condition) {
	for i := range s.devices {
		s.devices[i].more = slices.DeleteFunc(s.devices[i].more, func(of condition) bool { return of == c })
	}
}

// hasCondition reports whether the object has the condition of a device already.
func hasCondition(object *resourceapi.ResourceClaim, driver string, d deviceStatus, c condition) bool {
	return slices.ContainsFunc(object.Status.Devices, func(e resourceapi.AllocatedDeviceStatus) bool {
		have := meta.FindStatusCondition(e.Conditions, c.kind)
		return d.isEntry(e, driver) && have != nil && have.Status == c.status() && have.Message == c.message
	})
}

// roundedUp returns a clause about the amounts that the scheduler has rounded up; "" without any.
func roundedUp(object *resourceapi.ResourceClaim, driver string, d deviceStatus) string {
	if object.Status.Allocation == nil {
		return ""
	}
	var texts []string
	for _, result := range object.Status.Allocation.Devices.Results {
		if result.Driver != driver || !d.is(result.Pool, result.Device, result.ShareID) {
			continue
		}
		for _, r := range amounts.RoundedUp(object, result) {
			texts = append(texts, fmt.Sprintf("claim %s requests %s of %s (request %s), and holds %s", object.Name, r.Requested.String(), r.Capacity, result.Request, r.Held.String()))
		}
	}
	if texts == nil {
		return ""
	}
	return strings.Join(texts, "; ") + ": the scheduler rounds up to the least share and the step of the device, and quotas count what the claim holds; request that amount, or a larger part of the GPU"
}

// isOfMPS reports whether a device of a claim is a share that MPS limits.
func isOfMPS(data *v1alpha1.DeviceData) bool {
	return data != nil && data.Share != nil && data.Share.Strategy == v1alpha1.StrategyMPS
}

// severalShares returns a clause about a container that uses a share of another claim too. It
// returns "" if no container does. The kubelet's list has the claims of a container, and not their requests, so
// two shares of one claim are not found.
func severalShares(n needed, all []needed, containers []ContainerClaims) string {
	for _, c := range containers {
		if c.Namespace != n.Namespace || !slices.Contains(c.Claims, n.Name) || !isConsumer(n.object, c.Pod) || !isShareOfMPS(n) {
			continue
		}
		var shares []string
		for _, other := range all {
			if other.Namespace == c.Namespace && slices.Contains(c.Claims, other.Name) && isShareOfMPS(other) {
				shares = append(shares, other.Name)
			}
		}
		if len(shares) < 2 {
			continue
		}
		slices.Sort(shares)
		return fmt.Sprintf("container %s of pod %s uses the shares of the claims %s: a container uses one MPS daemon, and gets the limits of one share; name one share in each container, or request whole GPUs or MIG devices",
			c.Container, c.Pod, strings.Join(shares, ", "))
	}
	return ""
}

// isShareOfMPS reports whether MPS limits a device of a claim.
func isShareOfMPS(n needed) bool {
	return slices.ContainsFunc(n.Devices, func(d claim.Device) bool { return isOfMPS(dataOf(d)) })
}

// isConsumer reports whether the claim is reserved for a pod of the name.
func isConsumer(object *resourceapi.ResourceClaim, pod string) bool {
	return slices.ContainsFunc(object.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool {
		return r.APIGroup == "" && r.Resource == "pods" && r.Name == pod
	})
}

// listContainers returns the containers of running pods. Their order is fixed, so that texts about
// them stay the same. It returns none if the kubelet does not list them.
func (p *Plugin) listContainers(ctx context.Context) []ContainerClaims {
	if p.containers == nil {
		return nil
	}
	defer p.step.Begin()()
	all, err := p.containers(ctx)
	if err != nil {
		klog.FromContext(ctx).Info("Cannot list the claims of containers, will retry", "err", err, "after", p.interval)
	}
	slices.SortFunc(all, func(a, b ContainerClaims) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
	})
	return all
}

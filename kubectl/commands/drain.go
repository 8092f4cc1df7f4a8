// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/cordon"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/evict"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// drain evicts the pods of a GPU.
type drain struct {
	*verb
	cordon.Options
	target      cordon.Target
	gracePeriod int64
	// evicted has the claims of evicted pods, seen the pods that were evicted or left, and shown the printed pods and claims.
	evicted, seen, shown map[types.UID]bool
}

func (o *options) newDrain() *cobra.Command {
	var d drain
	var timeout time.Duration
	var reason string
	cmd := o.newVerb("drain NODE/GPU", "Cordon a GPU, evict the pods that have it, and wait until it is free",
		"Evicts pods by the eviction API, so that PodDisruptionBudgets hold, and waits until their claims are released. The\n"+
			"flags are the same as of kubectl drain. The GPU stays cordoned. If pods cannot be evicted without a flag, the command\n"+
			"names them and changes nothing.",
		func(ctx context.Context, v *verb) error {
			if err := cordon.CheckReason(reason); err != nil {
				return fmt.Errorf("--%w", err)
			}
			d := drain{verb: v, Options: d.Options, gracePeriod: d.gracePeriod, evicted: map[types.UID]bool{}, seen: map[types.UID]bool{}, shown: map[types.UID]bool{}}
			if timeout <= 0 {
				return d.run(ctx, reason)
			}
			limited, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%w after %s (--timeout)", gpu.ErrTimeout, timeout))
			defer cancel()
			return d.run(limited, reason)
		})
	cmd.Example = "  kubectl gpu drain node-1/gpu-1b-00 --ignore-daemonsets --timeout 10m\n  kubectl gpu drain node-1/gpu-1b-00 --dry-run"
	flags := cmd.Flags()
	flags.BoolVar(&d.Force, "force", false, "evict also pods that no controller creates again")
	flags.BoolVar(&d.IgnoreDaemonSets, "ignore-daemonsets", false, "leave pods of DaemonSets")
	flags.BoolVar(&d.DeleteEmptyDirData, "delete-emptydir-data", false, "evict also pods with emptyDir volumes, whose data are lost")
	flags.Int64Var(&d.gracePeriod, "grace-period", -1, "seconds for each pod to end; negative for the pod's own time")
	flags.DurationVar(&timeout, "timeout", 0, "time to wait before the command gives up; 0 waits for ever")
	flags.StringVar(&reason, "reason", "", "reason, kept as an annotation of the rules")
	return cmd
}

func (d *drain) run(ctx context.Context, reason string) error {
	plan, objects, err := d.plan(ctx)
	if err != nil {
		return err
	}
	if pods := refused(plan); pods != "" {
		return fmt.Errorf("drain %s: %w: nothing is changed: %s", d.target, gpu.ErrInUse, pods)
	}
	if err := d.cordon(ctx, d.target, objects.TaintRules, reason); err != nil {
		return err
	}
	d.show(plan)
	if d.dryRun {
		d.finish(plan, objects)
		return nil
	}
	// The scheduler may have allocated the GPU just before the cordon, so the claims are
	// read again, until no claim is left.
	for {
		if plan, objects, err = d.plan(ctx); err != nil {
			return err
		}
		d.show(plan)
		if len(plan.Pods) == len(plan.With(cordon.Leave)) && len(plan.Claims) == 0 {
			d.finish(plan, objects)
			return nil
		}
		if pods := refused(plan); pods != "" {
			return fmt.Errorf("drain %s: %w: %s; the GPU stays cordoned until kubectl gpu uncordon %s", d.target, gpu.ErrInUse, pods, d.target)
		}
		if err := d.round(ctx, plan); err != nil {
			return fmt.Errorf("drain %s: %w; the GPU stays cordoned until kubectl gpu uncordon %s", d.target, err, d.target)
		}
	}
}

// refused returns the pods of a plan that cannot be evicted without a flag, with the reasons.
func refused(plan cordon.Drain) string {
	return strings.Join(fleet.Each(plan.With(cordon.Refuse), withReason), "; ")
}

func withReason(p cordon.Pod) string { return fmt.Sprintf("pod %s: %s", p, p.Reason) }

// plan reads the cluster, and returns what the drain does.
func (d *drain) plan(ctx context.Context) (cordon.Drain, fleet.Objects, error) {
	t, objects, err := d.find(ctx, doctor.Slices, doctor.Claims, doctor.Rules, doctor.Pods)
	if errors.Is(err, gpu.ErrNotFound) && d.target.Node != "" {
		t, err = cordon.Target{Name: d.target.Name}, nil // no claim has it, and its node is replacing its slices
	}
	if err != nil {
		return cordon.Drain{}, objects, err
	}
	d.target = t
	return cordon.NewDrain(t, d.Options), objects, nil
}

// show prints the fate of pods that it has not printed yet.
func (d *drain) show(plan cordon.Drain) {
	for _, p := range plan.Pods {
		if d.shown[p.UID] || p.Fate == cordon.Refuse {
			continue
		}
		d.shown[p.UID] = true
		if p.Fate == cordon.Evict {
			d.say("evict pod %s: it has the claim %s", p, strings.Join(p.Claims, ", "))
			continue
		}
		d.seen[p.UID] = true
		verb := map[cordon.Fate]string{cordon.Leave: "leave", cordon.Ends: "wait for"}[p.Fate]
		d.say("%s pod %s: %s", verb, p, p.Reason)
	}
	for _, claim := range plan.Claims {
		if why := cordon.KeptBy(claim); why != "" && !d.shown[claim.UID] {
			d.shown[claim.UID] = true
			d.say("wait for claim %s: %s", fleet.FullName(claim), why)
		}
	}
}

// finish prints which claims and pods still have the GPU.
func (d *drain) finish(plan cordon.Drain, objects fleet.Objects) {
	if !d.dryRun && len(plan.Left) == 0 {
		d.say("%s is drained: no claim has it", d.target)
	} else if !d.dryRun {
		d.say("%s is drained, but for claims of pods that were left: %s", d.target, rows.List(fleet.Each(plan.Left, fleet.FullName[*resourceapi.ResourceClaim])))
	}
	if monitors := cordon.Monitors(d.target.Name, objects.Claims, objects.Pods); len(monitors) > 0 {
		d.say("pods with admin access keep reading it: %s; a reset of the GPU is refused until they end", rows.List(monitors))
	}
}

// round evicts the pods of a plan, and waits until they and their claims are gone.
func (d *drain) round(ctx context.Context, plan cordon.Drain) error {
	if err := d.checkReplaced(plan); err != nil {
		return err
	}
	requests := d.requests(d.gracePeriod)
	tasks, taskCtx := errgroup.WithContext(ctx)
	for _, p := range plan.Pods {
		if p.Fate == cordon.Leave {
			continue
		}
		d.seen[p.UID] = true
		tasks.Go(func() error {
			if p.Fate == cordon.Evict {
				if _, err := requests.Evict(taskCtx, p.Pod, false); err != nil {
					return err
				}
			}
			return requests.WaitForPod(taskCtx, p.Pod)
		})
	}
	if err := tasks.Wait(); err != nil {
		return err
	}
	for _, claim := range plan.Claims {
		d.evicted[claim.UID] = true
		if err := d.waitForClaim(ctx, claim); err != nil {
			return err
		}
	}
	// The waits above end at once if a claim is reserved for a pod that does not exist.
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(evict.PollTime):
		return nil
	}
}

// checkReplaced returns an error if a new pod uses the claim of an evicted pod. Evictions
// would never end then.
func (d *drain) checkReplaced(plan cordon.Drain) error {
	names := map[string]bool{}
	for _, claim := range plan.Claims {
		if d.evicted[claim.UID] {
			names[fleet.FullName(claim)] = true
		}
	}
	for _, p := range plan.With(cordon.Evict) {
		for _, claim := range p.Claims {
			if !d.seen[p.UID] && names[p.Namespace+"/"+claim] {
				return fmt.Errorf("pod %s uses the claim %s of an evicted pod again: %w: scale its controller to 0 and run the command again", p, claim, gpu.ErrInUse)
			}
		}
	}
	return nil
}

// waitForClaim waits until the claim has released the GPU, or a pod has taken it again.
func (d *drain) waitForClaim(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	name := fleet.FullName(claim)
	err := evict.Until(ctx, func() (bool, error) {
		now, err := d.client.ResourceV1().ResourceClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), failed("get resourceclaims.resource.k8s.io", err)
		}
		return now.UID != claim.UID || !d.target.Holds(now) || d.hasNewPod(now), nil
	})
	if err != nil {
		return fmt.Errorf("claim %s has not released the GPU: %w", name, err)
	}
	return nil
}

// hasNewPod reports whether a claim is reserved for a pod that the drain has not seen.
func (d *drain) hasNewPod(claim *resourceapi.ResourceClaim) bool {
	for _, user := range claim.Status.ReservedFor {
		if user.APIGroup == "" && user.Resource == "pods" && !d.seen[user.UID] {
			return true
		}
	}
	return false
}

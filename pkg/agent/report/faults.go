// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/cause"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

const (
	// faultAction is the action of the events.
	faultAction = "ReadKernelLog"
	// faultLines is the time for which further lines are about the same fault.
	faultLines = 5 * time.Second
	// faultPause is the least time between two events of one reason on an object.
	faultPause = time.Minute
	// faultsPerSecond, faultsAtOnce limit how many faults are handled, and maxQueue the events that
	// wait for the API server.
	faultsPerSecond, faultsAtOnce, maxQueue = 5, 50, 256
)

// The kinds of faults for a namespace in [Observer.ProgramFault].
const (
	FaultOwn     = "own"
	FaultOther   = "other"
	FaultUnknown = "unknown"
)

// Faults finds the programs that made faults.
type Faults interface {
	// Follow calls on for each XID that the driver logs from now on, until ctx ends.
	Follow(ctx context.Context, on func(gpu.LoggedXID))
	// PodOf returns the pod of a process of the kernel's log. The process may have ended. It
	// returns "" if the pod is not known, or if the process is in none.
	PodOf(pid int) types.UID
}

// faultEvents creates events about the faults of programs: on the pod whose program made the fault,
// and on the pods that share its MPS server, which ends all their programs. The faults of hardware
// are [healthEvents].
//
// The names of the events follow from the time in the kernel's log, so two agents of an update
// create each event once. Faults while no agent runs are not told.
type faultEvents struct {
	events
	// handled limits how many faults are handled.
	handled flowcontrol.RateLimiter
	queue   chan faultEvent

	// last has the last fault of each GPU. told has the time of the last event by object and
	// reason. Only see uses them.
	last map[gpu.PCIAddress]gpu.LoggedXID
	told map[string]time.Duration
}

// faultEvent is an event that is to be created on an object.
type faultEvent struct {
	event
	object corev1.ObjectReference
}

func newFaultEvents(o Options) *faultEvents {
	return &faultEvents{
		events: newEvents(o), handled: flowcontrol.NewTokenBucketRateLimiterWithClock(faultsPerSecond, faultsAtOnce, o.Clock),
		queue: make(chan faultEvent, maxQueue), last: map[gpu.PCIAddress]gpu.LoggedXID{}, told: map[string]time.Duration{},
	}
}

// follow queues the events about faults until ctx ends.
func (f *faultEvents) follow(ctx context.Context) {
	f.Faults.Follow(ctx, func(x gpu.LoggedXID) { f.see(ctx, x) })
}

// send creates the queued events until ctx ends.
func (f *faultEvents) send(ctx context.Context) {
	for {
		select {
		case e := <-f.queue:
			f.deliver(ctx, e)
		case <-ctx.Done():
			return
		}
	}
}

// faultUser is a claim on the GPU of a fault.
type faultUser struct {
	claim.Claim
	// pods has the name of each pod of the claim; "" if it is not known.
	pods map[types.UID]string
	// daemons are the devices with the MPS daemons of the claim.
	daemons []kind.Name
}

// see queues the events about an XID. It reads the claims at once: a pod that fails loses its claim
// soon.
func (f *faultEvents) see(ctx context.Context, x gpu.LoggedXID) {
	fault, known := cause.FaultOf(x.Number)
	if !known || f.isOfLast(x, fault) {
		return
	}
	f.last[x.GPU] = x
	if !f.handled.TryAccept() {
		klog.FromContext(ctx).V(2).Info("Too many faults of programs", "device", x.GPU.DeviceName())
		return
	}
	pod := f.Faults.PodOf(x.PID)
	users, err := f.usersOf(ctx, x.GPU)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot list the claims of a fault", "device", x.GPU.DeviceName(), "xid", x.Number)
		return
	}
	at, where := f.Clock.Now().UTC().Format(time.TimeOnly)+" UTC", x.GPU.DeviceName()+" of node "+f.NodeName
	own := culprits(users, pod)
	meaning, who, blame := fault.Meaning, "another program", FaultOwn
	if len(own) == 0 {
		// The program is of the host, or ended before it was known.
		meaning, who, blame = strings.Replace(meaning, "the program", "a program", 1), "a program", FaultUnknown
	}
	var by, ended []string
	told, toldPod := own, pod
	if len(own) == 0 && len(users) == 1 && len(users[0].pods) == 1 {
		told, toldPod = users, users[0].uids()[0]
	}
	if len(told) > 0 {
		by = append(by, f.enqueue(ctx, x, told[0], toldPod, v1alpha1.ReasonProgramFault, blame,
			fmt.Sprintf("XID %d at %s on %s: %s. What to do: %s.", x.Number, at, where, meaning, fault.User)))
	}
	if !fault.Follows && (len(own) > 0 || by == nil) {
		note := fmt.Sprintf("A fault of %s on %s (XID %d at %s) ended the programs of all its MPS shares. "+
			"What to do: start the program again; for faults that stay apart, use a MIG device or a GPU of your own.", who, where, x.Number, at)
		for _, u := range neighbors(users, pod) {
			for _, uid := range u.uids() {
				if uid != pod {
					ended = append(ended, f.enqueue(ctx, x, u, uid, v1alpha1.ReasonSharedFault, FaultOther, note))
				}
			}
		}
	}
	klog.FromContext(ctx).Info("A program made a fault on a GPU", "device", x.GPU.DeviceName(), "xid", x.Number, "pid", x.PID, "command", x.Command,
		"podUID", pod, "told", by, "toldOthers", ended)
}

// uids returns the pods of the claim, sorted.
func (u faultUser) uids() []types.UID { return slices.Sorted(maps.Keys(u.pods)) }

// isOfLast reports whether an XID is about the last fault of its GPU: another line about the
// process, or an XID that the driver logs for all programs that end with it.
func (f *faultEvents) isOfLast(x gpu.LoggedXID, fault cause.Fault) bool {
	last, seen := f.last[x.GPU]
	return seen && x.At-last.At < faultLines && (x.PID == last.PID || fault.Follows || x.Number == stopped)
}

// stopped is the XID of a program that the driver has stopped.
const stopped = 43

// namesPatience is how long the names of all pods on a GPU may take. Without a name an event is on the claim.
const namesPatience = 2 * time.Second

// usersOf returns the prepared claims on a GPU.
func (f *faultEvents) usersOf(ctx context.Context, address gpu.PCIAddress) ([]faultUser, error) {
	held, err := f.Claims.Held(ctx)
	// The API server may be slow, and the log goes on.
	named, cancel := context.WithTimeout(ctx, namesPatience)
	defer cancel()
	var users []faultUser
	for _, c := range held {
		if c.Phase != claim.Prepared && c.Phase != claim.Unrecorded || !slices.Contains(gpusOf(c), address) {
			continue
		}
		u := faultUser{Claim: c, pods: map[types.UID]string{}}
		for _, uid := range c.Pods {
			u.pods[uid] = ""
		}
		for uid, name := range f.Pods.PodsOf(named, c.Ref) {
			u.pods[uid] = name
		}
		for _, d := range c.Devices {
			if daemon := d.Name.MPSDaemon(); d.Name.Address == address && d.Strategy() == v1alpha1.StrategyMPS && !slices.Contains(u.daemons, daemon) {
				u.daemons = append(u.daemons, daemon)
			}
		}
		users = append(users, u)
	}
	return users, err
}

// culprits returns the claims of a pod. It returns none for a pod that is not known.
func culprits(users []faultUser, pod types.UID) []faultUser {
	return slices.DeleteFunc(slices.Clone(users), func(u faultUser) bool {
		_, is := u.pods[pod]
		return pod == "" || !is
	})
}

// neighbors returns the claims that use the same MPS server as a pod. If the pod has no claim, all
// claims on the GPU must use one server. It returns none if the server is not known.
func neighbors(users []faultUser, pod types.UID) []faultUser {
	own := culprits(users, pod)
	if len(own) == 0 {
		own = users
	}
	var daemons []kind.Name
	for _, u := range own {
		daemons = append(daemons, u.daemons...)
		if len(u.daemons) == 0 {
			return nil
		}
	}
	slices.SortFunc(daemons, kind.Compare)
	if daemons = slices.Compact(daemons); len(daemons) != 1 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(users), func(u faultUser) bool { return !slices.Contains(u.daemons, daemons[0]) })
}

// enqueue counts a fault and queues an event on a pod of a claim. It queues none if the object had
// one of the reason a short time ago. It returns the object of the event: the claim, if the name of
// the pod is not known. A claim for a PodGroup does not name its pods.
func (f *faultEvents) enqueue(ctx context.Context, x gpu.LoggedXID, u faultUser, pod types.UID, reason, blame, note string) (object string) {
	regarding := referenceToClaim(u.Namespace, u.Name, u.UID)
	if name := u.pods[pod]; name != "" {
		regarding = corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: u.Namespace, Name: name, UID: pod}
	}
	object = fmt.Sprintf("%s %s/%s", regarding.Kind, regarding.Namespace, regarding.Name)
	f.Observer.ProgramFault(x.Number, blame, u.Namespace)
	maps.DeleteFunc(f.told, func(_ string, at time.Duration) bool { return x.At-at >= faultPause })
	key := string(regarding.UID) + " " + reason
	if _, isTold := f.told[key]; isTold {
		return object
	}
	f.told[key] = x.At
	e := event{
		action: faultAction, kind: corev1.EventTypeWarning, reason: reason, note: note,
		device: x.GPU.DeviceName(), occasion: fmt.Sprintf("%s %d %s", reason, x.Number, x.At),
	}
	select {
	case f.queue <- faultEvent{e, regarding}:
	default:
		klog.FromContext(ctx).Info("Too many events wait, leaving out one about a fault", "object", object, "reason", reason)
	}
	return object
}

// deliver creates an event. It retries for half an hour at most while the API server does not answer.
func (f *faultEvents) deliver(ctx context.Context, e faultEvent) {
	for pause := eventsBackoff(); pause.Steps > 0; {
		err := f.create(ctx, e.object, e.event)
		if err == nil || ctx.Err() != nil {
			return
		}
		next := time.Minute / eventsPerMinute
		if !errors.Is(err, errRateLimit) {
			next = pause.Step()
			klog.FromContext(ctx).Error(err, "Cannot create an event about a fault")
		}
		if isAnswer(err) {
			return
		}
		select {
		case <-f.Clock.After(next):
		case <-ctx.Done():
			return
		}
	}
}

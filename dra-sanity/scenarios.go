// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	healthpb "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// namespace of the claims.
const namespace = "default"

// scenario is one thing that a driver must do.
type scenario struct {
	id   string
	want string
	// source is the specification or report that wants it.
	source string
	run    func(context.Context, *node) error
}

const (
	proto        = "k8s.io/kubelet/pkg/apis/dra/v1/api.proto"
	registration = "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto"
	types4381    = "KEP-4381, structured parameters"
	cdiSpec      = "CDI specification: generated specs are in /var/run, which others clean"
)

// scenarios in the order in which they run.
var scenarios = []scenario{
	{"register", "the driver registers within a minute, with its name, the type DRAPlugin and the service v1.DRAPlugin", registration, registers},
	{"register-again", "a restarted kubelet registers it again, and its socket answers", registration, registersAgain},
	{"register-after-kill", "after kill -9 it registers again, whatever sockets are left", registration, registersAfterKill},
	{"slices-valid", "its ResourceSlices are complete, within the limits, and name each device once", types4381, slicesValid},
	{"slices-stable", "it writes no slice while nothing changes, for 15 seconds", types4381, slicesStable},
	{"slices-restored", "a slice that somebody deletes is published again", types4381, slicesRestored},
	{"slices-after-kill", "a restart publishes the same devices, and withdraws none in between", types4381, slicesAfterKill},
	{"slices-api-away", "after an outage of the API server for 10 seconds it runs, and its slices are the same", types4381, slicesAPIAway},
	{"prepare", "prepare answers with each allocated device, and its CDI devices resolve", proto, prepares},
	{"prepare-two-devices", "a claim with two devices gets both", proto, preparesTwo},
	{"prepare-twice", "prepare of a prepared claim gives the same answer", proto, preparesTwice},
	{"prepare-at-once", "eight calls at the same time leave the claim prepared once", proto, preparesAtOnce},
	{"prepare-batch", "a bad claim in a call is refused, and the others can be prepared and unprepared", proto, preparesBatch},
	{"prepare-missing", "a claim that does not exist is refused", proto, preparesMissing},
	{"prepare-unallocated", "a claim without an allocation is refused", proto, preparesUnallocated},
	{"prepare-new-uid", "a claim that was deleted and made anew under its name is another claim", proto, preparesNewUID},
	{"prepare-bad-config", "unknown parameters are refused, and nothing is left", types4381, preparesBadConfig},
	{"prepare-other-driver", "of a claim with devices of two drivers it prepares its own", types4381, preparesOtherDriver},
	{"prepare-api-away", "prepare while the API server is away succeeds or fails within a minute, and succeeds afterwards", proto, preparesAPIAway},
	{"prepare-held", "a device of a claim that was deleted but not unprepared is not prepared for another claim", "kubernetes/kubernetes#141471", preparesHeld},
	{"prepare-again", "a device is prepared for another claim after the first one is unprepared", proto, preparesAgain},
	{"prepare-bad-names", "names that are paths create nothing outside the folders, and the driver lives", proto, preparesBadNames},
	{"kill-prepared", "after kill -9 a prepared claim gives the same answer", proto, killPrepared},
	{"kill-unprepare", "after kill -9 a prepared claim can be unprepared", proto, killUnprepare},
	{"kill-within", "kill -9 at any moment of prepare and unprepare leaves a claim that can be prepared and unprepared", proto, killWithin},
	{"cdi-emptied", "after the folder of CDI specs was emptied a prepared claim resolves when it is prepared again", cdiSpec, cdiEmptied},
	{"cdi-emptied-killed", "the same if the driver was killed before", cdiSpec, emptiedWhileAway},
	{"unprepare", "nothing is left in the folder of CDI specs", proto, unprepares},
	{"unprepare-twice", "unprepare of an unprepared claim succeeds", proto, unpreparesTwice},
	{"unprepare-unknown", "unprepare of a claim that was never prepared succeeds", proto, unpreparesUnknown},
	{"unprepare-deleted", "unprepare needs no object of the claim", proto, unpreparesDeleted},
	{"unprepare-one-of-two", "unprepare of one claim leaves the other", proto, unpreparesOneOfTwo},
	{"health", "the first message of its health stream comes within 10 seconds, and is of published devices", "k8s.io/kubelet/pkg/apis/dra-health/v1/api.proto", health},
	{"terminate", "SIGTERM ends it within 30 seconds", "terminationGracePeriodSeconds", terminates},
	{"update", "an update with two instances at a time keeps slices and prepared claims", "KEP-4381, rolling updates", updates},
	{"many", "claims one after another leave no open file and no spec", proto, manyClaims},
}

func registers(ctx context.Context, n *node) error {
	p, err := n.awaitPlugin(ctx)
	if err != nil {
		return err
	}
	if p.info.Type != "DRAPlugin" {
		err = errors.Join(err, fmt.Errorf("its type is %q", p.info.Type))
	}
	if !slices.Contains(p.info.SupportedVersions, drapb.DRAPluginService) {
		err = errors.Join(err, fmt.Errorf("its services are %q", p.info.SupportedVersions))
	}
	if _, statErr := os.Stat(p.info.Endpoint); statErr != nil {
		err = errors.Join(err, fmt.Errorf("its endpoint: %w", statErr))
	}
	return err
}

func registersAgain(ctx context.Context, n *node) error {
	for range 3 {
		if err := registers(ctx, n); err != nil {
			return err
		}
	}
	_, err := n.prepare(ctx)
	return err
}

func registersAfterKill(ctx context.Context, n *node) error {
	if err := n.restart(ctx, syscall.SIGKILL, nothing); err != nil {
		return err
	}
	return registersAgain(ctx, n)
}

func nothing() error { return nil }

func slicesValid(ctx context.Context, n *node) error {
	found, err := n.complete(ctx)
	if err != nil {
		return err
	}
	return errors.Join(n.invalid(found)...)
}

func slicesStable(ctx context.Context, n *node) error {
	before, err := n.complete(ctx)
	if err != nil {
		return err
	}
	// The time is what is tested.
	if err := sleep(ctx, 15*time.Second); err != nil {
		return err
	}
	after, err := n.slices(ctx)
	if err != nil {
		return err
	}
	versions := func(list []resourceapi.ResourceSlice) (all []string) {
		for _, slice := range list {
			all = append(all, slice.Name+" "+slice.ResourceVersion)
		}
		return all
	}
	if !slices.Equal(versions(before), versions(after)) {
		return fmt.Errorf("slices changed from %q to %q", versions(before), versions(after))
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// deviceNames returns all published devices, sorted.
func (n *node) deviceNames(ctx context.Context) ([]string, error) {
	found, err := n.slices(ctx)
	var names []string
	for _, slice := range found {
		for _, device := range slice.Spec.Devices {
			names = append(names, slice.Spec.Pool.Name+"/"+device.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// same waits until the driver publishes devices again, and nothing else.
func (n *node) same(ctx context.Context, want []string) error {
	return until(ctx, startLimit, func() error {
		if _, err := n.complete(ctx); err != nil {
			return err
		}
		names, err := n.deviceNames(ctx)
		if err == nil && !slices.Equal(names, want) {
			err = fmt.Errorf("devices are %q, want %q", names, want)
		}
		return err
	})
}

func slicesRestored(ctx context.Context, n *node) error {
	found, err := n.complete(ctx)
	if err != nil {
		return err
	}
	names, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	if err := n.client.ResourceV1().ResourceSlices().Delete(ctx, found[0].Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return n.same(ctx, names)
}

func slicesAfterKill(ctx context.Context, n *node) error {
	if _, err := n.complete(ctx); err != nil {
		return err
	}
	names, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	withdrawn := make(chan string, 1)
	go func() {
		for watch.Err() == nil {
			now, err := n.deviceNames(watch)
			if missing := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(now, name) }); err == nil && len(missing) > 0 {
				withdrawn <- strings.Join(missing, ", ")
				return
			}
			if sleep(watch, 20*time.Millisecond) != nil {
				break
			}
		}
		close(withdrawn)
	}()
	if err := n.restart(ctx, syscall.SIGKILL, nothing); err != nil {
		return err
	}
	// What a start withdraws, it withdraws within seconds of its registration.
	if err := errors.Join(n.same(ctx, names), sleep(ctx, 3*time.Second)); err != nil {
		return err
	}
	cancel()
	if missing := <-withdrawn; missing != "" {
		return fmt.Errorf("during the restart these devices were not published: %s", missing)
	}
	return nil
}

func slicesAPIAway(ctx context.Context, n *node) error {
	if n.server == nil {
		return errNoServer
	}
	if _, err := n.complete(ctx); err != nil {
		return err
	}
	names, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	n.server.setDown(true)
	err = sleep(ctx, 10*time.Second)
	n.server.setDown(false)
	if err := errors.Join(err, n.same(ctx, names)); err != nil {
		return err
	}
	if !n.driver.running() {
		return errors.New("the driver has ended")
	}
	return nil
}

func prepares(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "one")
	if err != nil {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

func preparesTwo(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 2)
	if err != nil {
		return err
	}
	claim, err := n.allocate(ctx, "two", devices, "")
	if err != nil {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

// equal prepares a claim again, and compares the answer with an earlier one.
func (n *node) equal(ctx context.Context, claim *resourceapi.ResourceClaim, first []*drapb.Device) error {
	again, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	if a, b := cdiIDs(first), cdiIDs(again); !slices.Equal(a, b) || len(first) != len(again) {
		return fmt.Errorf("the first answer has %d devices with %q, and the later one %d with %q", len(first), a, len(again), b)
	}
	return nil
}

func preparesTwice(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "twice")
	if err != nil {
		return err
	}
	first, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	return n.equal(ctx, claim, first)
}

func preparesAtOnce(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "at-once")
	if err != nil {
		return err
	}
	const calls = 8
	answers := make([][]*drapb.Device, calls)
	errs := make([]error, calls)
	var wait sync.WaitGroup
	for i := range calls {
		wait.Go(func() { answers[i], errs[i] = n.ready(ctx, claim) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, answer := range answers {
		if err := n.equal(ctx, claim, answer); err != nil {
			return err
		}
	}
	return nil
}

func preparesBatch(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 2)
	if err != nil {
		return err
	}
	first, err := n.allocate(ctx, "batch-first", devices[:1], "")
	if err != nil {
		return err
	}
	last, err := n.allocate(ctx, "batch-last", devices[1:], "")
	if err != nil {
		return err
	}
	missing := &drapb.Claim{Namespace: namespace, Name: "batch-missing", Uid: string(uuid.NewUUID())}
	if err := n.refused(ctx, missing, "a claim that does not exist", call(first), call(last)); err != nil {
		return err
	}
	return until(ctx, callLimit, func() error {
		answers, err := n.prepare(ctx, call(first), call(last))
		if err != nil {
			return err
		}
		_, firstErr := n.checkAnswer(first, answers)
		_, lastErr := n.checkAnswer(last, answers)
		return errors.Join(firstErr, lastErr)
	})
}

// refused checks that prepare refuses a claim, alone or with the whole call. The kubelet treats both alike.
func (n *node) refused(ctx context.Context, claim *drapb.Claim, why string, others ...*drapb.Claim) error {
	answers, err := n.prepare(ctx, append(others, claim)...)
	if err != nil {
		if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
			return err
		}
		return nil
	}
	if answers[claim.Uid].GetError() == "" {
		return fmt.Errorf("the answer has no error for %s", why)
	}
	return nil
}

func preparesMissing(ctx context.Context, n *node) error {
	return n.refused(ctx, &drapb.Claim{Namespace: namespace, Name: "missing", Uid: string(uuid.NewUUID())}, "a claim that does not exist")
}

func preparesUnallocated(ctx context.Context, n *node) error {
	claim, err := n.allocate(ctx, "unallocated", nil, "")
	if err != nil {
		return err
	}
	return n.refused(ctx, call(claim), "a claim without an allocation")
}

func preparesNewUID(ctx context.Context, n *node) error {
	old, err := n.one(ctx, "renewed")
	if err != nil {
		return err
	}
	if err := n.remove(ctx, old); err != nil {
		return err
	}
	renewed, err := n.one(ctx, "renewed")
	if err != nil {
		return err
	}
	if err := n.refused(ctx, call(old), "a claim that was deleted"); err != nil {
		return err
	}
	_, err = n.ready(ctx, renewed)
	return err
}

func preparesBadConfig(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return err
	}
	claim, err := n.allocate(ctx, "bad-config", devices, `{"apiVersion": "sanity.example/v1", "kind": "Nonsense"}`)
	if err != nil {
		return err
	}
	if err := n.refused(ctx, call(claim), "unknown parameters"); err != nil {
		return err
	}
	return n.nothingNames(claim)
}

func preparesOtherDriver(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return err
	}
	claim, err := n.allocate(ctx, "other-driver", devices, "")
	if err != nil {
		return err
	}
	claim.Status.Allocation.Devices.Results = append(claim.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
		Request: "r0", Driver: "other.sanity.example", Pool: "other", Device: "other",
	})
	if claim, err = n.client.ResourceV1().ResourceClaims(namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

func preparesAPIAway(ctx context.Context, n *node) error {
	if n.server == nil {
		return errNoServer
	}
	claim, err := n.one(ctx, "api-away")
	if err != nil {
		return err
	}
	n.server.setDown(true)
	_, err = n.prepare(ctx, call(claim))
	n.server.setDown(false)
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

// second prepares a claim for a device, deletes the claim by force, and allocates the device to a second claim.
func (n *node) second(ctx context.Context) (first, second *resourceapi.ResourceClaim, err error) {
	devices, err := n.take(ctx, 1)
	if err != nil {
		return nil, nil, err
	}
	if shared(devices[0]) == 1 {
		return nil, nil, fmt.Errorf("%w: all devices are shared by claims", errSkipped)
	}
	if first, err = n.allocate(ctx, "first", devices, ""); err != nil {
		return nil, nil, err
	}
	if _, err = n.ready(ctx, first); err != nil {
		return nil, nil, err
	}
	if err = n.remove(ctx, first); err != nil {
		return nil, nil, err
	}
	second, err = n.allocate(ctx, "second", devices, "")
	return first, second, err
}

func preparesHeld(ctx context.Context, n *node) error {
	_, second, err := n.second(ctx)
	if err != nil {
		return err
	}
	return n.refused(ctx, call(second), "a device that another claim still has")
}

func preparesAgain(ctx context.Context, n *node) error {
	first, second, err := n.second(ctx)
	if err != nil {
		return err
	}
	if err := n.unprepare(ctx, call(first)); err != nil {
		return err
	}
	_, err = n.ready(ctx, second)
	return err
}

func preparesBadNames(ctx context.Context, n *node) error {
	for _, bad := range []string{"../../sanity-escape", "/sanity-escape", "a\nb", ""} {
		claim := &drapb.Claim{Namespace: namespace, Name: bad, Uid: bad}
		// Either is right, as long as the driver lives.
		_, prepareErr := n.prepare(ctx, claim)
		_ = errors.Join(prepareErr, n.unprepare(ctx, claim))
	}
	for _, path := range []string{filepath.Join(n.kubelet, "sanity-escape"), filepath.Join(n.cdi, "../../sanity-escape"), "/sanity-escape"} {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("%s was created", path)
		}
	}
	_, err := n.prepare(ctx)
	return err
}

func killPrepared(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "kill-prepared")
	if err != nil {
		return err
	}
	first, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	if err := n.restart(ctx, syscall.SIGKILL, nothing); err != nil {
		return err
	}
	return n.equal(ctx, claim, first)
}

func killUnprepare(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "kill-unprepare")
	if err != nil {
		return err
	}
	first, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	if err := n.restart(ctx, syscall.SIGKILL, nothing); err != nil {
		return err
	}
	if err := n.unprepare(ctx, call(claim)); err != nil {
		return err
	}
	return n.gone(claim, cdiIDs(first))
}

// killWithin kills the driver after parts of the time that a call takes.
func killWithin(ctx context.Context, n *node) error {
	if n.driver == nil {
		return errNoDriver
	}
	claim, err := n.one(ctx, "kill-within")
	if err != nil {
		return err
	}
	const rounds = 8
	calls := map[string]func() error{
		"prepare":   func() error { _, err := n.readyOnce(ctx, claim); return err },
		"unprepare": func() error { return n.unprepare(ctx, call(claim)) },
	}
	took := map[string]time.Duration{}
	for _, name := range []string{"prepare", "unprepare"} {
		began := time.Now()
		if err := calls[name](); err != nil {
			return err
		}
		took[name] = time.Since(began)
	}
	for i := range rounds {
		for _, name := range []string{"prepare", "unprepare"} {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = calls[name]() // the driver may die before it answers
			}()
			err := errors.Join(sleep(ctx, took[name]*time.Duration(i)/rounds), n.restart(ctx, syscall.SIGKILL, nothing))
			<-done
			if err == nil {
				err = until(ctx, callLimit, calls[name])
			}
			if err != nil {
				return fmt.Errorf("%s, killed after %d/%d of its time: %w", name, i, rounds, err)
			}
		}
	}
	return n.nothingNames(claim)
}

func emptiedWhileAway(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "emptied-killed")
	if err != nil {
		return err
	}
	if _, err := n.ready(ctx, claim); err != nil {
		return err
	}
	if err := n.restart(ctx, syscall.SIGKILL, n.emptyCDI); err != nil {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

func cdiEmptied(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "cdi-emptied")
	if err != nil {
		return err
	}
	if _, err := n.ready(ctx, claim); err != nil {
		return err
	}
	if err := n.emptyCDI(); err != nil {
		return err
	}
	_, err = n.ready(ctx, claim)
	return err
}

func unprepares(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "unprepare")
	if err != nil {
		return err
	}
	first, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	if err := n.unprepare(ctx, call(claim)); err != nil {
		return err
	}
	return n.gone(claim, cdiIDs(first))
}

func unpreparesTwice(ctx context.Context, n *node) error {
	if err := unprepares(ctx, n); err != nil {
		return err
	}
	return n.unprepare(ctx, call(n.claims[0]))
}

func unpreparesUnknown(ctx context.Context, n *node) error {
	return n.unprepare(ctx, &drapb.Claim{Namespace: namespace, Name: "unknown", Uid: string(uuid.NewUUID())})
}

func unpreparesDeleted(ctx context.Context, n *node) error {
	claim, err := n.one(ctx, "deleted")
	if err != nil {
		return err
	}
	first, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	if err := errors.Join(n.remove(ctx, claim), n.unprepare(ctx, call(claim))); err != nil {
		return err
	}
	return n.gone(claim, cdiIDs(first))
}

func unpreparesOneOfTwo(ctx context.Context, n *node) error {
	devices, err := n.take(ctx, 2)
	if err != nil {
		return err
	}
	first, err := n.allocate(ctx, "first-of-two", devices[:1], "")
	if err != nil {
		return err
	}
	other, err := n.allocate(ctx, "other-of-two", devices[1:], "")
	if err != nil {
		return err
	}
	if _, err := n.ready(ctx, first); err != nil {
		return err
	}
	prepared, err := n.ready(ctx, other)
	if err != nil {
		return err
	}
	if err := n.unprepare(ctx, call(first)); err != nil {
		return err
	}
	return n.resolve(cdiIDs(prepared)...)
}

// health reads the first message of the stream. A driver need not have one.
func health(ctx context.Context, n *node) error {
	names, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	conn, err := n.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // the answer counts
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	stream, err := healthpb.NewDRAResourceHealthClient(conn).NodeWatchResources(ctx, &healthpb.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	answer, err := stream.Recv()
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: the driver has no health stream", errSkipped)
	}
	if err != nil {
		return fmt.Errorf("NodeWatchResources: %w", err)
	}
	for _, device := range answer.Devices {
		if name := device.Device.GetPoolName() + "/" + device.Device.GetDeviceName(); !slices.Contains(names, name) {
			err = errors.Join(err, fmt.Errorf("device %s is not published", name))
		}
	}
	return err
}

func terminates(ctx context.Context, n *node) error {
	return n.restart(ctx, syscall.SIGTERM, nothing)
}

func updates(ctx context.Context, n *node) error {
	if n.driver == nil {
		return errNoDriver
	}
	claim, err := n.one(ctx, "update")
	if err != nil {
		return err
	}
	first, err := n.ready(ctx, claim)
	if err != nil {
		return err
	}
	names, err := n.deviceNames(ctx)
	if err != nil {
		return err
	}
	old := n.driver
	if n.driver, err = n.startDriver(); err != nil {
		return err
	}
	if _, err := n.awaitPlugin(ctx); err != nil {
		return err
	}
	// The second instance needs a moment to replace the first.
	if err := errors.Join(sleep(ctx, 3*time.Second), old.signal(ctx, syscall.SIGTERM)); err != nil {
		return errors.Join(err, old.signal(context.WithoutCancel(ctx), syscall.SIGKILL))
	}
	if !n.driver.running() {
		return errors.New("the second instance has ended")
	}
	return errors.Join(n.same(ctx, names), n.equal(ctx, claim, first))
}

func manyClaims(ctx context.Context, n *node) error {
	files := func() (int, error) {
		if n.driver == nil {
			return 0, nil
		}
		return n.driver.files()
	}
	before, err := files()
	if err != nil {
		return err
	}
	for i := range n.many {
		claim, err := n.one(ctx, fmt.Sprintf("many-%d", i))
		if err != nil {
			return err
		}
		if _, err := n.ready(ctx, claim); err != nil {
			return fmt.Errorf("claim %d: %w", i, err)
		}
		if err := errors.Join(n.unprepare(ctx, call(claim)), n.nothingNames(claim), n.remove(ctx, claim)); err != nil {
			return fmt.Errorf("claim %d: %w", i, err)
		}
		n.claims = nil
	}
	// Connections of finished calls close a moment later.
	const spare = 10
	return until(ctx, 10*time.Second, func() error {
		after, err := files()
		if err == nil && after > before+spare {
			err = fmt.Errorf("the driver has %d open files after %d claims, and had %d", after, n.many, before)
		}
		return err
	})
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"
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
	cdiSpec      = "CDI specification: generated specs are in /var/run, which other programs clean; kubernetes/kubernetes#141433"
	// The rest are sentences of the interface DRAPlugin in k8s.io/dynamic-resource-allocation/kubeletplugin.
	prepareAgain   = `DRAPlugin: "This call must be idempotent because the kubelet might have to ask for preparation multiple times"`
	lastLine       = `DRAPlugin: "the DRA driver is the last line of defense against using the same device for two different unrelated workloads"; kubernetes/kubernetes#141471`
	otherProcess   = `DRAPlugin: "The DRA driver cannot assume that the matching PrepareResourceClaims call was handled by the same process"`
	unprepareAgain = `DRAPlugin: "it is not an error if this gets called for a ResourceClaim which is not currently prepared"`
	objectGone     = `DRAPlugin: "the original ResourceClaims may have been deleted already"`
	undo           = `DRAPlugin: "UnprepareResourceClaims must undo whatever work PrepareResourceClaims did"`
)

// scenarios in the order in which they run.
var scenarios = []scenario{
	{"register", "the driver registers within a minute, with its name, the type DRAPlugin and the service v1.DRAPlugin", registration, registers},
	{"register-again", "a restarted kubelet registers it again, and its socket answers", registration, registersAgain},
	{"register-after-kill", "after kill -9 it registers again, whatever sockets are left", registration, registersAfterKill},
	{"slices-valid", "its ResourceSlices are complete, within the limits, and name each device once", types4381, slicesValid},
	{"slices-stable", "it writes no slice in 15 seconds without a change", types4381, slicesStable},
	{"slices-restored", "a deleted slice is published again", types4381, slicesRestored},
	{"slices-after-kill", "a restart publishes the same devices, and withdraws none in between", types4381, slicesAfterKill},
	{"slices-api-away", "after an outage of the API server for 10 seconds it runs, and its slices are the same", types4381, slicesAPIAway},
	{"prepare", "prepare answers with each allocated device, and its CDI devices resolve", proto, prepares},
	{"prepare-two-devices", "a claim with two devices gets both", proto, preparesTwo},
	{"prepare-twice", "prepare of a prepared claim returns the same devices", prepareAgain, preparesTwice},
	{"prepare-at-once", "eight calls at the same time leave the claim prepared once", prepareAgain, preparesAtOnce},
	{"prepare-batch", "a bad claim in a call is refused, and the others can be prepared and unprepared by one call", proto, preparesBatch},
	{"prepare-missing", "a claim that does not exist is refused", proto, preparesMissing},
	{"prepare-unallocated", "a claim without an allocation is refused", proto, preparesUnallocated},
	{"prepare-new-uid", "a new claim with the name of a deleted one is another claim", proto, preparesNewUID},
	{"prepare-bad-config", "unknown parameters are refused, and nothing is left", types4381, preparesBadConfig},
	{"prepare-other-driver", "of a claim with devices of two drivers it prepares its own", types4381, preparesOtherDriver},
	{"prepare-api-away", "prepare while the API server is away succeeds or fails within 45 seconds, and succeeds afterwards", proto, preparesAPIAway},
	{"prepare-held", "a device of a claim that was deleted but not unprepared is not prepared for another claim", lastLine, preparesHeld},
	{"prepare-again", "a device is prepared for another claim after the first one is unprepared", proto, preparesAgain},
	{"prepare-bad-names", "names that are paths create and remove nothing outside the folders, and no other claim", proto, preparesBadNames},
	{"kill-prepared", "after kill -9, prepare of a prepared claim returns the same devices", prepareAgain, killPrepared},
	{"kill-unprepare", "after kill -9 a prepared claim can be unprepared", otherProcess, killUnprepare},
	{"kill-within", "kill -9 at any moment of prepare and unprepare leaves a claim that can be prepared and unprepared", otherProcess, killWithin},
	{"cdi-emptied", "after the folder of CDI specs was emptied a prepared claim resolves when it is prepared again", cdiSpec, cdiEmptied},
	{"cdi-emptied-killed", "the same if the driver was killed before", cdiSpec, emptiedWhileAway},
	{"unprepare", "nothing is left in the folder of CDI specs", undo, unprepares},
	{"unprepare-twice", "unprepare of an unprepared claim succeeds", unprepareAgain, unpreparesTwice},
	{"unprepare-unknown", "unprepare of a claim that was never prepared succeeds", unprepareAgain, unpreparesUnknown},
	{"unprepare-deleted", "unprepare needs no object of the claim", objectGone, unpreparesDeleted},
	{"unprepare-one-of-two", "unprepare of one claim leaves the other", proto, unpreparesOneOfTwo},
	{"metadata", "its metadata files describe the devices of the claim, and are gone after unprepare", "k8s.io/dynamic-resource-allocation/api/metadata", metadataFiles},
	{"health", "the first message of its health stream comes within 10 seconds, and lists published devices only", "k8s.io/kubelet/pkg/apis/dra-health/v1/api.proto", health},
	{"terminate", "SIGTERM ends it within 30 seconds", "terminationGracePeriodSeconds", terminates},
	{"update", "an update with two instances at a time keeps slices and prepared claims", "KEP-4381, rolling updates", updates},
	{"many", "claims one after another leave no open file and no spec", undo, manyClaims},
}

func slicesValid(ctx context.Context, n *node) error {
	found, err := n.complete(ctx)
	if err != nil {
		return err
	}
	return errors.Join(n.invalid(found)...)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

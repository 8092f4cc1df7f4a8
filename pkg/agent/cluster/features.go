// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
)

// versionTimeout bounds one request for the version.
const versionTimeout = 10 * time.Second

// VersionFunc returns the version of the API server, such as "v1.37.1". If the
// server does not report one, it returns a word for the reason.
type VersionFunc func(ctx context.Context) (string, error)

// ServerVersion returns a function that reads the API server's version. It returns
// "forbidden" if the server refuses: that must not stop the agent from publishing.
func ServerVersion(client kubernetes.Interface) VersionFunc {
	server := discovery.ToServerVersionInterfaceWithContext(client.Discovery())
	return func(ctx context.Context) (string, error) {
		info, err := server.ServerVersionWithContext(ctx)
		switch {
		case apierrors.IsForbidden(err):
			return "forbidden", nil
		case err != nil:
			return "", fmt.Errorf("ask the API server for its version: %w", err)
		}
		return cmp.Or(info.GitVersion, "empty"), nil
	}
}

// The feature gates that change the published devices.
const (
	consumableCapacity   = "DRAConsumableCapacity"
	partitionableDevices = "DRAPartitionableDevices"
	deviceTaints         = "DRADeviceTaints"
)

// Features is the writer of [state.State.Features]. Its methods may be called from any
// goroutine.
type Features struct {
	version VersionFunc
	table   *state.Table[state.Features]

	mu        sync.Mutex
	asked     bool            // the version was requested
	err       error           // why the version is not known
	reported  string          // the version; "" until it is known
	tooOld    bool            // the version is too old for counters, or unknown
	dropped   map[string]bool // feature gates that are known to be off
	lastError string          // that HandleError has logged
}

// NewFeatures returns the features of an API server that supports all of them as
// far as is known.
func NewFeatures(version VersionFunc, table *state.Table[state.Features]) *Features {
	f := &Features{version: version, table: table, dropped: map[string]bool{}}
	f.write()
	return f
}

// Run requests the version of the API server until that has succeeded once, or ctx ends. Later
// changes come through [Features.HandleError].
func (f *Features) Run(ctx context.Context) {
	_ = source.Backoff().DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		return f.learn(ctx) == nil, nil
	})
}

// write writes the features that the cluster supports, as far as is known. Callers hold mu.
func (f *Features) write() {
	now := state.Features{Known: f.asked, Err: f.err}
	now.Exclusive, now.NoCounters = f.dropped[consumableCapacity], f.dropped[partitionableDevices] || f.tooOld
	if f.tooOld {
		now.OldVersion = f.reported
	}
	f.table.Set(now)
}

// learn reads the version of the API server. Vendors add words behind a version that say
// nothing of its order, so only its numbers count.
func (f *Features) learn(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	reported, err := f.version(limited)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked, f.err = true, err; err == nil {
		parsed, unclear := version.ParseGeneric(reported)
		f.reported = reported
		f.tooOld = unclear != nil || parsed.LessThan(version.MustParseGeneric(state.CountersHoldSince))
	}
	f.write()
	return err
}

// HandleError handles an error that upstream's ResourceSlice controller reports in
// the background; see kubeletplugin.DRAPlugin. It logs a repeated error once, and
// never blocks.
//
// In a cluster without consumable capacity the API server drops the fields that make a
// GPU shareable. In one without partitionable devices it drops the counters by which
// devices of a GPU exclude each other. HandleError treats neither as a failure: from
// then on each GPU is published for one claim at a time, or as a whole only.
func (f *Features) HandleError(ctx context.Context, err error, msg string) {
	logger := klog.FromContext(ctx)
	var dropped *resourceslice.DroppedFieldsError
	if !errors.As(err, &dropped) {
		if f.isNewError(err) {
			logger.Error(err, "Cannot publish the devices of the node, will retry", "step", msg)
		}
		return
	}
	gates := dropped.DisabledFeatures()
	for _, gate := range gates {
		if !f.setDropped(gate) {
			continue
		}
		switch gate {
		case consumableCapacity:
			logger.Info("GPUs are not shared: the cluster lacks consumable capacity", "remedy", "enable the feature gate "+consumableCapacity)
		case partitionableDevices:
			logger.Info("No MIG, no time slices: cluster lacks partitionable devices", "remedy", "enable the feature gate "+partitionableDevices)
		case deviceTaints:
			logger.Info("New pods may get failed GPUs: cluster lacks device taints", "remedy", "enable the feature gate "+deviceTaints)
		default:
			logger.Info("The cluster drops fields of the published devices", "featureGate", gate, "err", err)
		}
	}
}

// isNewError records the error, and reports whether the last one was another.
func (f *Features) isNewError(err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	repeated := f.lastError == err.Error()
	f.lastError = err.Error()
	return !repeated
}

// setDropped records that a feature gate is off, and reports whether that is new.
func (f *Features) setDropped(gate string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.dropped[gate]
	f.dropped[gate] = true
	f.write()
	return !known
}

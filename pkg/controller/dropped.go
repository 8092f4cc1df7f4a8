package controller

import (
	"context"
	"errors"
	"slices"

	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
)

// HandleError takes an error that the ResourceSlice controller reports in the
// background; see kubeletplugin.DRAPlugin. It logs an error once, however often
// it is repeated, and never blocks.
//
// In a cluster without consumable capacity the API server drops what makes a
// GPU shareable, and in one without partitionable devices what keeps a GPU's
// devices apart. That is no failure: from then on every GPU is published for one
// claim at a time, or as a whole only.
func (c *Controller) HandleError(ctx context.Context, err error, msg string) {
	logger := klog.FromContext(ctx)
	var dropped *resourceslice.DroppedFieldsError
	if !errors.As(err, &dropped) {
		c.mu.Lock()
		repeated := c.lastError == err.Error()
		c.lastError = err.Error()
		c.mu.Unlock()
		if !repeated {
			logger.Error(err, "Publishing the node's devices failed and is tried again", "step", msg)
		}
		return
	}
	for _, feature := range dropped.DisabledFeatures() {
		c.mu.Lock()
		known := c.dropped[feature]
		c.dropped[feature] = true
		c.mu.Unlock()
		if known {
			continue
		}
		switch feature {
		case "DRAConsumableCapacity":
			logger.Info("WARNING: this cluster has no consumable capacity, so GPUs are published whole and cannot be shared; enable the feature gate DRAConsumableCapacity to share them")
		case "DRAPartitionableDevices":
			logger.Info("WARNING: this cluster has no partitionable devices, so GPUs are offered neither in MIG devices nor in time slices; enable the feature gate DRAPartitionableDevices to offer them")
		case "DRADeviceTaints":
			logger.Info("WARNING: this cluster has no device taints, so new pods may be given GPUs that have failed; enable the feature gate DRADeviceTaints")
		default:
			logger.Info("WARNING: this cluster drops part of what is published", "featureGate", feature, "err", err)
		}
	}
	whole := slices.Contains(dropped.DisabledFeatures(), "DRAConsumableCapacity")
	undivided := slices.Contains(dropped.DisabledFeatures(), "DRAPartitionableDevices")
	if whole || undivided {
		c.mu.Lock()
		c.catalog.Exclusive = c.catalog.Exclusive || whole
		c.catalog.NoCounters = c.catalog.NoCounters || undivided
		c.mu.Unlock()
		c.lookAgain()
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// driver is a DRA driver with constant devices. It keeps no record: preparing a
// claim changes nothing.
type driver struct {
	spec
	node string
	// attributes by the names of the device and the attribute.
	attributes map[string]map[string]resourceapi.DeviceAttribute
}

func newDriver(s spec, node string) *driver {
	d := &driver{spec: s, node: node, attributes: map[string]map[string]resourceapi.DeviceAttribute{}}
	for _, device := range s.Devices {
		attributes := map[string]resourceapi.DeviceAttribute{}
		for name, value := range device.Attributes {
			attributes[string(name)] = value
		}
		d.attributes[device.Name] = attributes
	}
	return d
}

// resources returns one pool with all devices, named after the node.
func (d *driver) resources() resourceslice.DriverResources {
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
		d.node: {Slices: []resourceslice.Slice{{Devices: d.Devices}}},
	}}
}

// PrepareResourceClaims returns the allocated devices of this driver, with their
// published attributes as metadata for the container.
func (d *driver) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var prepared kubeletplugin.PrepareResult
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != d.Driver {
				continue
			}
			prepared.Devices = append(prepared.Devices, kubeletplugin.Device{
				Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID,
				Metadata: &kubeletplugin.DeviceMetadata{Attributes: d.attributes[result.Device]},
			})
		}
		results[claim.UID] = prepared
	}
	return results, nil
}

// UnprepareResourceClaims reports success for each claim.
func (d *driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := map[types.UID]error{}
	for _, claim := range claims {
		results[claim.UID] = nil
	}
	return results, nil
}

// HandleError logs an error of the background, such as a refused ResourceSlice.
func (d *driver) HandleError(ctx context.Context, err error, msg string) {
	utilruntime.HandleErrorWithContext(ctx, err, msg, "driver", d.Driver)
}

// WatchHealthStatus is never called: the health service is off.
func (d *driver) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}

// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// The condition in status.devices and its reasons. [Reason] returns the others.
const (
	ConditionReady      = v1alpha1.ConditionReady
	ReasonPrepared      = "Prepared"
	ReasonPrepareFailed = "PrepareFailed"
)

// claimStatus is the desired status.devices of one claim.
type claimStatus struct {
	claim   kubeletplugin.NamespacedObject
	devices []deviceStatus
	// createEvents creates the events that go with the status, and can be repeated; nil without any.
	createEvents func(context.Context) error
	// applied is set once the status is written, while its events are not.
	applied bool
}

type deviceStatus struct {
	pool, device    string
	shareID         *types.UID
	ready           metav1.ConditionStatus
	reason, message string
	// data is nil if the device was not prepared.
	data *v1alpha1.DeviceData
	// more are the conditions besides that one that are true or unknown.
	more []condition
	// since is the time of the last state change.
	since time.Time
}

// condition is a condition that is true or, if unknown is set, unknown.
type condition struct {
	kind, reason, message string
	unknown               bool
	// since is the time of the condition; zero for that of the status.
	since time.Time
}

func (c condition) status() metav1.ConditionStatus {
	if c.unknown {
		return metav1.ConditionUnknown
	}
	return metav1.ConditionTrue
}

// conditions returns all conditions of the device in a fixed order.
func (d deviceStatus) conditions() []metav1.Condition {
	all := []metav1.Condition{{Type: ConditionReady, Status: d.ready, Reason: d.reason, Message: d.message, LastTransitionTime: metav1.NewTime(d.since)}}
	for _, c := range d.more {
		all = append(all, metav1.Condition{Type: c.kind, Status: c.status(), Reason: c.reason, Message: c.message, LastTransitionTime: metav1.NewTime(cmp.Or(c.since, d.since))})
	}
	return all
}

// readyStatus returns the status of a claim whose devices are prepared.
func readyStatus(object kubeletplugin.NamespacedObject, devices []claim.Device, now time.Time) *claimStatus {
	status := &claimStatus{claim: object}
	for _, d := range devices {
		status.add(deviceStatus{
			pool: d.Pool, device: d.Name.String(), shareID: d.ShareID, since: now,
			ready: metav1.ConditionTrue, reason: ReasonPrepared, message: "the device is prepared",
			data: dataOf(d),
		})
	}
	return status
}

// failedStatus returns the status of a claim that could not be prepared. Every
// allocated device of this driver has the error as its message. The status is empty if
// the claim is not allocated.
func failedStatus(object *resourceapi.ResourceClaim, driver string, err error, now time.Time) *claimStatus {
	status := &claimStatus{claim: nameOf(object)}
	if object.Status.Allocation == nil {
		return status
	}
	for _, r := range object.Status.Allocation.Devices.Results {
		if r.Driver == driver {
			status.add(deviceStatus{
				pool: r.Pool, device: r.Device, shareID: r.ShareID, since: now,
				ready: metav1.ConditionFalse, reason: Reason(err), message: err.Error(),
			})
		}
	}
	return status
}

// add adds an entry unless the status has one for the same device and share: the API
// requires unique entries, and a device with admin access can be in a claim twice.
func (s *claimStatus) add(d deviceStatus) {
	for _, other := range s.devices {
		if other.isFor(d.pool, d.device, d.shareID) {
			return
		}
	}
	s.devices = append(s.devices, d)
}

// isFor reports whether the status is of a device, or of a share of it.
func (d deviceStatus) isFor(pool, device string, shareID *types.UID) bool {
	return d.pool == pool && d.device == device && ptr.Deref(d.shareID, "") == ptr.Deref(shareID, "")
}

// isEntry reports whether an entry of a claim is about the device.
func (d deviceStatus) isEntry(e resourceapi.AllocatedDeviceStatus, driver string) bool {
	return e.Driver == driver && d.isFor(e.Pool, e.Device, (*types.UID)(e.ShareID))
}

// entry returns the device's entry in the claim's status.
func (d deviceStatus) entry(driver string) (*resourceapply.AllocatedDeviceStatusApplyConfiguration, error) {
	entry := resourceapply.AllocatedDeviceStatus().
		WithDriver(driver).WithPool(d.pool).WithDevice(d.device)
	for _, c := range d.conditions() {
		entry.WithConditions(metaapply.Condition().
			WithType(c.Type).WithStatus(c.Status).
			WithReason(c.Reason).WithMessage(c.Message).
			WithLastTransitionTime(c.LastTransitionTime))
	}
	if d.shareID != nil {
		entry.WithShareID(string(*d.shareID))
	}
	if d.data != nil {
		raw, err := json.Marshal(d.data)
		if err != nil {
			return nil, err
		}
		entry.WithData(runtime.RawExtension{Raw: raw})
	}
	return entry, nil
}

// written reports whether the claim's object has this status already. It has it when
// the kubelet prepares the claim again after a restart.
func (s *claimStatus) written(object *resourceapi.ResourceClaim, driver string) bool {
	for _, d := range s.devices {
		if !slices.ContainsFunc(object.Status.Devices, func(e resourceapi.AllocatedDeviceStatus) bool { return d.matches(e, driver) }) {
			return false
		}
	}
	return true
}

func (d deviceStatus) matches(e resourceapi.AllocatedDeviceStatus, driver string) bool {
	if !d.isEntry(e, driver) {
		return false
	}
	if d.data != nil && (e.Data == nil || !equalData(d.data, e.Data.Raw)) {
		return false
	}
	written := slices.DeleteFunc(slices.Clone(e.Conditions), func(c metav1.Condition) bool { return !isOwnCondition(c.Type) })
	return slices.EqualFunc(written, d.conditions(), func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
	})
}

// isOwnCondition reports whether this driver, and not another program, writes the condition.
func isOwnCondition(kind string) bool {
	switch kind {
	case ConditionReady, v1alpha1.ConditionForeignProcess, v1alpha1.ConditionMemoryUnlimited, v1alpha1.ConditionExternallyAllocated, v1alpha1.ConditionOtherDriver,
		v1alpha1.ConditionShareInterrupted, v1alpha1.ConditionShareUnserved, v1alpha1.ConditionShareWaits:
		return true
	}
	return false
}

func nameOf(object *resourceapi.ResourceClaim) kubeletplugin.NamespacedObject {
	return kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: object.Namespace, Name: object.Name}, UID: object.UID,
	}
}

// dataOf returns the data about a device for the claim's status.
func dataOf(d claim.Device) *v1alpha1.DeviceData {
	data := v1alpha1.NewDeviceData()
	data.UUID = d.UUID
	if d.Name.Kind.Scope() != kind.ScopeNode {
		data.PCIBusID = d.Name.Address.String()
	}
	data.Share = d.Terms.Data(d.Name.Kind)
	return data
}

// equalData reports whether raw has the same fields as the data. The API server
// changes their order.
func equalData(d *v1alpha1.DeviceData, raw []byte) bool {
	var other v1alpha1.DeviceData
	if json.Unmarshal(raw, &other) != nil {
		return false
	}
	want, err := json.Marshal(d)
	got, otherErr := json.Marshal(&other)
	return err == nil && otherErr == nil && bytes.Equal(want, got)
}

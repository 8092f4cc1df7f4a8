// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

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

// SPDX-License-Identifier: Apache-2.0

package nodelabels

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The labels of a node, as GPU feature discovery names them.
const (
	Product = "nvidia.com/gpu.product"
	Memory  = "nvidia.com/gpu.memory"
	Count   = "nvidia.com/gpu.count"
	Clique  = "nvidia.com/gpu.clique"
)

// discovered is the label that GPU feature discovery sets on its nodes.
const discovered = "nvidia.com/gfd.timestamp"

// Labels returns the labels for a node with these ResourceSlices of the driver. ok is false
// while the slices are incomplete. A label whose value is not the same for all GPUs is
// absent.
func Labels(slices []*resourceapi.ResourceSlice) (labels map[string]string, ok bool) {
	var newest, want int64
	for _, s := range slices {
		newest = max(newest, s.Spec.Pool.Generation)
	}
	values := map[string]map[string]bool{}
	gpus, have := 0, int64(0)
	for _, s := range slices {
		if s.Spec.Pool.Generation != newest {
			continue
		}
		want = s.Spec.Pool.ResourceSliceCount
		have++
		for _, d := range s.Spec.Devices {
			if text(d, "type") != "gpu" {
				continue
			}
			gpus++
			for name, value := range describe(d) {
				if values[name] == nil {
					values[name] = map[string]bool{}
				}
				values[name][value] = true
			}
		}
	}
	labels = map[string]string{}
	if gpus > 0 {
		labels[Count] = strconv.Itoa(gpus)
	}
	for name, found := range values {
		for value := range found {
			if len(found) == 1 && value != "" && len(validation.IsValidLabelValue(value)) == 0 {
				labels[name] = value
			}
		}
	}
	return labels, have == want
}

// describe returns the labels for a node with only this GPU. An empty value is unknown.
func describe(d resourceapi.Device) map[string]string {
	labels := map[string]string{Product: strings.Join(strings.Fields(text(d, "productName")), "-"), Memory: "", Clique: ""}
	if memory, has := d.Capacity["memory"]; has {
		labels[Memory] = strconv.FormatInt(memory.Value.Value()>>20, 10)
	}
	if cluster, clique := text(d, "fabricClusterUUID"), d.Attributes["fabricCliqueID"].IntValue; cluster != "" && clique != nil {
		labels[Clique] = fmt.Sprintf("%s.%d", cluster, *clique)
	}
	return labels
}

func text(d resourceapi.Device, name resourceapi.QualifiedName) string {
	if value := d.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// change returns the labels that the manager must apply to the node to have the wanted ones.
// needed is false if it has applied them already. Labels of others are left out.
func change(node *corev1.Node, manager string, wanted map[string]string) (apply map[string]string, needed bool) {
	own, others := owners(node, manager)
	apply = map[string]string{}
	if _, found := node.Labels[discovered]; !found {
		for key, value := range wanted {
			_, exists := node.Labels[key]
			if foreign := exists && !own[key] || others[key]; !foreign {
				apply[key] = value
			}
		}
	}
	needed = len(apply) != len(own)
	for key, value := range apply {
		needed = needed || !own[key] || node.Labels[key] != value
	}
	return apply, needed
}

// owners returns the labels that the manager has applied to the node, and the labels of other
// managers.
func owners(node *corev1.Node, manager string) (own, others map[string]bool) {
	own, others = map[string]bool{}, map[string]bool{}
	for _, entry := range node.ManagedFields {
		var fields struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		owned := others
		if entry.Manager == manager {
			owned = own
		}
		for field := range fields.Metadata.Labels {
			if key, is := strings.CutPrefix(field, "f:"); is {
				owned[key] = true
			}
		}
	}
	return own, others
}

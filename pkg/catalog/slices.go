// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"
)

const (
	// printedSuffix stands for the five random characters that the API server
	// ends a generated name with.
	printedSuffix = "xxxxx"
	// printedUID stands for the UID of the node, which only a cluster knows.
	printedUID = "00000000-0000-0000-0000-000000000000"
	// generatedBase is the number of characters that the API server keeps of a name's
	// generated part.
	generatedBase = 58
)

// SlicesOf returns the ResourceSlices of a node that has none yet, in the order of their
// names. They are as upstream's ResourceSlice controller creates them for a node with that
// name and UID.
func SlicesOf(resources resourceslice.DriverResources, driver, node string, uid types.UID) []resourceapi.ResourceSlice {
	var all []resourceapi.ResourceSlice
	for _, name := range slices.Sorted(maps.Keys(resources.Pools)) {
		pool := resources.Pools[name]
		for i, slice := range pool.Slices {
			all = append(all, resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{
					// The scheduler reads slices in the order of their names.
					GenerateName:    fmt.Sprintf("%05x-%s-%s-", i, driver, node),
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid, Controller: ptr.To(true)}},
				},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:         driver,
					NodeName:       &node,
					Pool:           resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(pool.Slices))},
					Devices:        slice.Devices,
					SharedCounters: slice.SharedCounters,
				},
			})
		}
	}
	return all
}

// SlicesOfNode selects the ResourceSlices of a node under the name of a driver.
func SlicesOfNode(driver, node string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorDriver: driver, resourceapi.ResourceSliceSelectorNodeName: node,
	}.String()}
}

// PrintedSlices returns the ResourceSlices that the driver of a new node creates for the resources.
// Two values that differ between clusters are fixed: the random end of a name is "xxxxx", and
// the UID of the owning node is all zeros.
func PrintedSlices(driver, node string, resources resourceslice.DriverResources) []resourceapi.ResourceSlice {
	all := SlicesOf(resources, driver, node, printedUID)
	for i := range all {
		s := &all[i]
		s.TypeMeta = metav1.TypeMeta{APIVersion: resourceapi.SchemeGroupVersion.String(), Kind: "ResourceSlice"}
		s.Name = s.GenerateName[:min(len(s.GenerateName), generatedBase)] + printedSuffix
	}
	return all
}

// WriteList writes the slices as a v1.List in JSON, as kubectl prints them and
// applies them.
func WriteList(w io.Writer, written []resourceapi.ResourceSlice) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		metav1.TypeMeta `json:",inline"`
		metav1.ListMeta `json:"metadata"`
		Items           []resourceapi.ResourceSlice `json:"items"`
	}{metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, metav1.ListMeta{}, written})
}

// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// offerFor returns how an administrator has a node offer the devices that claims request. It returns
// "" if no node can have them.
func (e *explaining) offerFor(claims []*resourceapi.ResourceClaim) string {
	for _, claim := range claims {
		for _, r := range fleet.Requests(claim.Spec.Devices) {
			class, err := fleet.Classes(e.cluster.Objects.Classes).Get(r.Exactly.DeviceClassName)
			if err != nil {
				continue
			}
			if text := e.offer(wordOf(class)); text != "" {
				return text
			}
		}
	}
	return ""
}

// wordOf returns the word of a node's offer for the devices of a class. It returns "" if every node
// offers them.
func wordOf(class *resourceapi.DeviceClass) string {
	k := kind.Kind(class.Labels[v1alpha1.LabelType])
	switch {
	case !slices.Contains(kind.All(), k):
		return ""
	case k.Offer() == "" && class.Labels[v1alpha1.LabelShares] == "only":
		return v1alpha1.OfferShare
	default:
		return k.Offer()
	}
}

// offer returns how the first node that can offer a word does so. Nodes that offer MIG devices have
// some of the profiles only.
func (e *explaining) offer(word string) string {
	text := ""
	for _, node := range e.cluster.Nodes() {
		if word == "" || !canOffer(node, word) {
			continue
		}
		if word == v1alpha1.OfferMIG && slices.ContainsFunc(node.Devices, func(d fleet.Device) bool { return d.Published != nil && d.Kind.Offer() == word }) {
			return fmt.Sprintf("if the GPUs of node %s have the MIG profile, an administrator adds it: %s", node.Name, gpu.Page("docs/admin/mig.md#further-profiles"))
		}
		if text == "" {
			text = fmt.Sprintf("an administrator adds %s to the offer of node %s: %s", word, node.Name, gpu.Page("docs/admin/pools.md#settings-of-a-pool"))
		}
	}
	return text
}

// canOffer reports whether a GPU of the node can have devices of an offer.
func canOffer(node fleet.Node, word string) bool {
	return slices.ContainsFunc(node.GPUs, func(g fleet.GPU) bool {
		whole := g.Whole().Published
		if whole == nil {
			return false
		}
		capable := whole.Attributes[v1alpha1.AttributeMIGCapable].BoolValue
		return word != v1alpha1.OfferMIG || capable == nil || *capable
	})
}

// readsProfile reports whether a selector of a claim reads the profile of MIG devices.
func readsProfile(claims []*resourceapi.ResourceClaim) bool {
	for _, claim := range claims {
		for _, r := range fleet.Requests(claim.Spec.Devices) {
			for _, expression := range fleet.Expressions(r.Exactly.Selectors) {
				if slices.ContainsFunc(fleet.NamesIn(expression), func(n fleet.Name) bool { return n.ID == v1alpha1.AttributeProfile }) {
					return true
				}
			}
		}
	}
	return false
}

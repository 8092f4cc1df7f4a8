// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// OfferWith returns the value of the label of a node's offer with one word more. It keeps the words
// of the label that the node has, and what the node publishes.
func OfferWith(node fleet.Node, label, word string) string {
	words := strings.FieldsFunc(label, func(r rune) bool { return r == '.' || r == '_' })
	published := map[string]bool{word: true}
	for _, d := range node.Devices {
		if d.Published == nil {
			continue
		}
		published[d.Kind.Offer()] = true
		if multiple := d.Published.AllowMultipleAllocations; d.Kind.Takes() == kind.TakesMemory && multiple != nil && *multiple {
			published[v1alpha1.OfferShare] = true
		}
	}
	for _, own := range []string{v1alpha1.OfferShare, v1alpha1.OfferMIG, v1alpha1.OfferTimeSlice, v1alpha1.OfferSeat, v1alpha1.OfferMonitor} {
		if published[own] && !slices.Contains(words, own) {
			words = append(words, own)
		}
	}
	return strings.Join(words, ".")
}

// classOffer returns how an administrator has a node offer the devices that claims request. With
// words of an offer, it leaves out classes of other words. It returns nothing if no node can have them.
func (e *explaining) classOffer(claims []*resourceapi.ResourceClaim, only ...string) []string {
	var all []string
	for _, claim := range claims {
		for _, r := range claim.Spec.Devices.Requests {
			if r.Exactly == nil {
				continue
			}
			for _, class := range e.cluster.Objects.Classes {
				word := wordOf(class)
				if class.Name == r.Exactly.DeviceClassName && (len(only) == 0 || slices.Contains(only, word)) {
					addOnce(&all, e.offer(word, slices.Concat(class.Spec.Selectors, r.Exactly.Selectors)))
				}
			}
		}
	}
	return all
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

// offer returns how the first node that can offer a word does so: by its label, or a page if a MIG
// profile is offered only by a list of the chart.
func (e *explaining) offer(word string, selectors []resourceapi.DeviceSelector) string {
	if word == "" {
		return ""
	}
	for _, node := range e.cluster.Nodes() {
		for _, g := range node.GPUs {
			profile, named, can := e.profile(g, word, selectors)
			offered := isOffered(node, word)
			if !can || offered && !named {
				continue
			}
			if offered || named && !e.isCommon(g, profile) {
				return fmt.Sprintf("an administrator adds the MIG profile %s to those of node %s: %s", profile, node.Name, gpu.Page("docs/admin/mig.md#further-profiles"))
			}
			return fmt.Sprintf("an administrator offers such devices on node %s: kubectl label node %s %s=%s --overwrite",
				node.Name, node.Name, v1alpha1.LabelOffer, OfferWith(node, e.labelOf(node.Name), word))
		}
	}
	return ""
}

// labelOf returns the label of a node's offer. It returns "" if the node has none or is not known.
func (e *explaining) labelOf(node string) string {
	i := slices.IndexFunc(e.cluster.Objects.Nodes, func(n *corev1.Node) bool { return n.Name == node })
	if i < 0 {
		return ""
	}
	return e.cluster.Objects.Nodes[i].Labels[v1alpha1.LabelOffer]
}

func isOffered(node fleet.Node, word string) bool {
	return slices.ContainsFunc(node.Devices, func(d fleet.Device) bool { return d.Published != nil && d.Kind.Offer() == word })
}

// profile reports whether a GPU can have devices of an offer, and the MIG profile that selectors
// name.
func (e *explaining) profile(g fleet.GPU, word string, selectors []resourceapi.DeviceSelector) (profile string, named, can bool) {
	i := slices.IndexFunc(g.Devices, func(d fleet.Device) bool { return d.ID.Device == g.Name && d.Published != nil })
	if i < 0 || word != v1alpha1.OfferMIG {
		return "", false, i >= 0
	}
	if capable := g.Devices[i].Published.Attributes[v1alpha1.AttributeMIGCapable].BoolValue; capable != nil && !*capable {
		return "", false, false
	}
	profiles := e.profilesOf(g)
	reads := false
	for _, expression := range fleet.Expressions(selectors) {
		for _, name := range fleet.NamesIn(expression) {
			reads = reads || name.ID == v1alpha1.AttributeProfile
		}
		for _, p := range profiles {
			if strings.Contains(expression, "'"+p+"'") || strings.Contains(expression, `"`+p+`"`) {
				return p, true, true
			}
		}
	}
	return "", false, len(profiles) > 0 && !reads
}

func (e *explaining) profilesOf(g fleet.GPU) []string {
	if e.Profiles == nil {
		return nil
	}
	return e.Profiles(g.Model)
}

// isCommon reports whether nodes offer a profile without a list of the chart: of one, two and three
// slices the one with the least memory, and the one of the whole GPU.
func (e *explaining) isCommon(g fleet.GPU, profile string) bool {
	least, largest := map[int]gpu.Profile{}, 0
	for _, text := range e.profilesOf(g) {
		p, err := gpu.ParseProfile(text)
		if err != nil || p.Media != "" {
			continue
		}
		largest = max(largest, p.Slices)
		if known, ok := least[p.Slices]; !ok || p.MemoryGB < known.MemoryGB {
			least[p.Slices] = p
		}
	}
	p, err := gpu.ParseProfile(profile)
	return err == nil && p == least[p.Slices] && (p.Slices <= 3 || p.Slices == largest)
}

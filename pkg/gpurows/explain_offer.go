// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// offerOf returns the words of a node's offer, from the devices that it publishes, and a word
// besides.
func offerOf(node fleet.Node, besides string) string {
	has := map[string]bool{besides: true}
	for _, g := range node.GPUs {
		for _, d := range g.Devices {
			if d.Published == nil {
				continue
			}
			has[d.Kind.Offer()] = true
			if multiple := d.Published.AllowMultipleAllocations; d.ID.Device == g.Name && multiple != nil && *multiple {
				has[v1alpha1.OfferShare] = true
			}
		}
	}
	var words []string
	for _, word := range []string{v1alpha1.OfferShare, v1alpha1.OfferMIG, v1alpha1.OfferTimeSlice, v1alpha1.OfferSeat} {
		if has[word] {
			words = append(words, word)
		}
	}
	return strings.Join(words, ".")
}

// offerFor returns the commands with which an administrator offers the devices of an extended
// resource on a node.
func (e *explaining) offerFor(resource string) []string {
	if resource == otherShared {
		return e.offer(v1alpha1.OfferTimeSlice, "")
	}
	profile, _ := profileOf(resource)
	return e.offer(v1alpha1.OfferMIG, profile)
}

// offer returns the commands that have a node offer devices: by its label if it does not offer
// the kind, or by values of the chart if it lacks only the profile. It returns none if no GPU
// can have such devices.
func (e *explaining) offer(word, profile string) []string {
	for _, node := range e.cluster.Nodes() {
		g, has := e.able(node, word, profile)
		if g.Name == "" {
			continue
		}
		profiles := e.from.profiles(g.Model)
		switch common := commonProfiles(profiles); {
		case !has:
			texts := []string{fmt.Sprintf("an administrator offers them on node %s, whose %s can have them: kubectl label node %s %s=%s --overwrite",
				node.Name, strings.TrimSpace(g.Name+" "+g.Model), node.Name, v1alpha1.LabelOffer, offerOf(node, word))}
			if profile != "" && !slices.Contains(common, profile) {
				texts = append(texts, profileValue(append(common, profile)))
			}
			return texts
		case profile != "" && !slices.Contains(offered(node), profile):
			return []string{fmt.Sprintf("node %s offers MIG devices, and not the profile %s, which its %s has; an administrator adds it: %s",
				node.Name, profile, strings.TrimSpace(g.Name+" "+g.Model), profileValue(append(offered(node), profile)))}
		}
	}
	return nil
}

// profileValue returns the command that has nodes offer MIG profiles.
func profileValue(profiles []string) string {
	slices.Sort(profiles)
	return fmt.Sprintf("helm upgrade gpu-dra-driver deployments/helm/gpu-dra-driver --namespace gpu-dra-driver --reuse-values --set 'mig.profiles={%s}' (for nodes with a configuration, mig.profiles of it in nodeConfigs)",
		strings.Join(slices.Compact(profiles), ","))
}

func (s Sources) profiles(model string) []string {
	if s.Profiles == nil {
		return nil
	}
	return s.Profiles(model)
}

// commonProfiles returns the profiles that a node offers without a list: for one, two and three
// slices the one with the least memory, and the one of the whole GPU.
func commonProfiles(all []string) []string {
	least := map[int]gpu.Profile{}
	largest := 0
	for _, text := range all {
		p, err := gpu.ParseProfile(text)
		if err != nil || p.Media != "" {
			continue
		}
		largest = max(largest, p.Slices)
		if known, ok := least[p.Slices]; !ok || p.MemoryGB < known.MemoryGB {
			least[p.Slices] = p
		}
	}
	var common []string
	for slices, p := range least {
		if slices <= 3 || slices == largest {
			common = append(common, p.String())
		}
	}
	slices.Sort(common)
	return common
}

// able returns a GPU of the node that can have devices of the offer. The GPU has no name if
// there is none. has reports whether the node publishes such devices.
func (e *explaining) able(node fleet.Node, word, profile string) (g fleet.GPU, has bool) {
	for _, candidate := range node.GPUs {
		for _, d := range candidate.Devices {
			if d.Published != nil && d.Kind.Offer() == word {
				has = true
			}
			if d.Published == nil || d.ID.Device != candidate.Name || g.Name != "" {
				continue
			}
			if word == v1alpha1.OfferMIG && !e.canHave(candidate, d, profile) {
				continue
			}
			g = candidate
		}
	}
	return g, has
}

// canHave reports whether a GPU can have MIG devices of the profile.
func (e *explaining) canHave(g fleet.GPU, d fleet.Device, profile string) bool {
	if capable := d.Published.Attributes[v1alpha1.AttributeMIGCapable].BoolValue; capable != nil && !*capable {
		return false
	}
	return slices.Contains(e.from.profiles(g.Model), profile)
}

// offered returns the MIG profiles that a node publishes.
func offered(node fleet.Node) []string {
	var all []string
	for _, g := range node.GPUs {
		for _, d := range g.Devices {
			if d.Published == nil {
				continue
			}
			// The profiles are part of a command.
			if value := d.Published.Attributes[v1alpha1.AttributeProfile].StringValue; value != nil {
				if profile, err := gpu.ParseProfile(*value); err == nil {
					addOnce(&all, profile.String())
				}
			}
		}
	}
	return all
}

// classOffer returns the commands that have a node offer the devices of the classes of claims.
func (e *explaining) classOffer(claims []*resourceapi.ResourceClaim) []string {
	var all []string
	for _, claim := range claims {
		for _, r := range claim.Spec.Devices.Requests {
			if r.Exactly == nil {
				continue
			}
			i := slices.IndexFunc(e.cluster.Objects.Classes, func(c *resourceapi.DeviceClass) bool { return c.Name == r.Exactly.DeviceClassName })
			if i < 0 {
				continue
			}
			class := e.cluster.Objects.Classes[i]
			word := kind.Kind(class.Labels[v1alpha1.LabelType])
			if !slices.Contains(kind.All(), word) || word.Offer() == "" {
				continue
			}
			profile := ""
			if own := class.Spec.ExtendedResourceName; own != nil && strings.HasPrefix(*own, otherMIG) {
				profile, _ = profileOf(*own)
			}
			addOnce(&all, e.offer(word.Offer(), profile)...)
		}
	}
	return all
}

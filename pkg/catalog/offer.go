// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// Offer selects the kinds of devices that a node offers besides whole GPUs. It is a list
// of words of [KnownOffers], in their order and with commas between them: "share,mig".
// The zero value offers whole GPUs only.
type Offer string

func (o Offer) has(word string) bool { return slices.Contains(strings.Split(string(o), ","), word) }

// Share reports whether several claims can take shares of the memory and compute of one
// GPU. If MIG is offered too, they can also share one MIG device; see [ShareOffer].
func (o Offer) Share() bool { return o.has(v1alpha1.OfferShare) }

// Partitions reports whether the node offers MIG devices; see [MIGOffer].
func (o Offer) Partitions() bool {
	return slices.ContainsFunc(kind.All(), func(k kind.Kind) bool { return k.Scope() == kind.ScopePartition && o.Has(k) })
}

// Has reports whether the node offers devices of the kind. Whole GPUs are always
// offered.
func (o Offer) Has(k kind.Kind) bool { return k.Offer() == "" || o.has(k.Offer()) }

// KnownOffers returns the words that [ParseOffer] accepts: shares, and those of the kinds.
func KnownOffers() []string {
	words := []string{v1alpha1.OfferShare}
	for _, k := range kind.All() {
		if k.Offer() != "" {
			words = append(words, k.Offer())
		}
	}
	return words
}

// ParseOffer reads a comma-separated list of what a node offers, such as
// "share,mig". The error for a word that is unknown, missing or said twice wraps
// [gpu.ErrInvalid] and lists the known ones.
func ParseOffer(s string) (Offer, error) {
	known, words := KnownOffers(), strings.Split(s, ",")
	for i, word := range words {
		problem := "is unknown"
		if slices.Contains(words[:i], word) {
			problem = "is there twice"
		} else if slices.Contains(known, word) {
			continue
		}
		return "", fmt.Errorf("offer %q: %w: %q %s; known are: %s", s, gpu.ErrInvalid, word, problem, strings.Join(known, ", "))
	}
	slices.SortFunc(words, func(a, b string) int { return slices.Index(known, a) - slices.Index(known, b) })
	return Offer(strings.Join(words, ",")), nil
}

// ParseOfferLabel reads the value of [v1alpha1.LabelOffer]: the words of [ParseOffer]
// with dots or underscores between them, "share.mig" or "share_mig", as a
// label's value can hold no comma. An empty value offers nothing but whole
// GPUs.
func ParseOfferLabel(value string) (Offer, error) {
	if value == "" {
		return "", nil
	}
	return ParseOffer(strings.NewReplacer(".", ",", "_", ",").Replace(value))
}

// String returns the notation that [ParseOffer] reads; "" for the zero value.
func (o Offer) String() string { return string(o) }

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

// Offer selects the kinds of devices that a node offers besides whole GPUs. The zero
// value offers whole GPUs only.
type Offer struct {
	// Share lets several claims take shares of the memory and compute of one GPU,
	// or of one MIG device if MIG is offered too; see [ShareOffer].
	Share bool
	// MIG offers MIG devices; see [MIGOffer].
	MIG bool
	// TimeSlice lets several claims take time slices of one GPU.
	TimeSlice bool
	// Seat lets several claims take equal seats of one GPU; see [ShareOffer.Seats].
	Seat bool
	// Monitor offers all GPUs together to monitoring agents.
	Monitor bool
}

// offers are the words of an [Offer], in the order in which they are written.
var offers = []struct {
	word string
	in   func(*Offer) *bool
}{
	{v1alpha1.OfferShare, func(o *Offer) *bool { return &o.Share }},
	{v1alpha1.OfferMIG, func(o *Offer) *bool { return &o.MIG }},
	{v1alpha1.OfferTimeSlice, func(o *Offer) *bool { return &o.TimeSlice }},
	{v1alpha1.OfferSeat, func(o *Offer) *bool { return &o.Seat }},
	{v1alpha1.OfferMonitor, func(o *Offer) *bool { return &o.Monitor }},
}

// Has reports whether the node offers devices of the kind. Whole GPUs are always
// offered.
func (o Offer) Has(k kind.Kind) bool {
	for _, offer := range offers {
		if offer.word == k.Offer() {
			return *offer.in(&o)
		}
	}
	return k.Offer() == ""
}

// KnownOffers returns the words that [ParseOffer] accepts.
func KnownOffers() []string {
	words := make([]string, len(offers))
	for i, offer := range offers {
		words[i] = offer.word
	}
	return words
}

// ParseOffer reads a comma-separated list of what a node offers, such as
// "share,mig". The error for a word that is unknown, missing or said twice wraps
// [gpu.ErrInvalid] and lists the known ones.
func ParseOffer(s string) (Offer, error) {
	var o Offer
	for word := range strings.SplitSeq(s, ",") {
		i := slices.Index(KnownOffers(), word)
		if i < 0 {
			return Offer{}, fmt.Errorf("offer %q: %w: %q is unknown; known are: %s", s, gpu.ErrInvalid, word, strings.Join(KnownOffers(), ", "))
		}
		set := offers[i].in(&o)
		if *set {
			return Offer{}, fmt.Errorf("offer %q: %w: %q is there twice; known are: %s", s, gpu.ErrInvalid, word, strings.Join(KnownOffers(), ", "))
		}
		*set = true
	}
	return o, nil
}

// ParseOfferLabel reads the value of [v1alpha1.LabelOffer]: the words of [ParseOffer]
// with dots or underscores between them, "share.mig" or "share_mig", as a
// label's value can hold no comma. An empty value offers nothing but whole
// GPUs.
func ParseOfferLabel(value string) (Offer, error) {
	if value == "" {
		return Offer{}, nil
	}
	return ParseOffer(strings.NewReplacer(".", ",", "_", ",").Replace(value))
}

// String returns the notation that [ParseOffer] reads; "" for the zero value.
func (o Offer) String() string {
	var words []string
	for _, offer := range offers {
		if *offer.in(&o) {
			words = append(words, offer.word)
		}
	}
	return strings.Join(words, ",")
}

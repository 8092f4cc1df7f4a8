// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// advice returns the remedy for a name that devices lack.
func (n *Names) advice(name Name) string {
	vocabulary := n.vocabulary()
	if similar, ok := sameID(vocabulary, name); ok {
		return similar.instead(name)
	}
	switch have := n.published[name]; {
	case have > 0:
		return fmt.Sprintf("only %s it: read %s", NumberVerb(have, "device", "has", "have"), name.optional())
	case slices.Contains(vocabulary, name):
		return "no node publishes it; attributes and offer of the chart say what nodes publish: " + attributesPage()
	}
	ids := Each(vocabulary, func(n Name) string { return n.ID })
	if near := Nearest(name.ID, ids); len(near) > 0 {
		return fmt.Sprintf("did you mean %s?", vocabulary[slices.Index(ids, near[0])].expression())
	}
	return "write a name that devices have: " + attributesPage()
}

func attributesPage() string { return gpu.Page("docs/user/attributes.md#attributes") }

// vocabulary returns the names that devices of this driver can have.
func (n *Names) vocabulary() []Name {
	var all []Name
	for _, full := range kind.AttributeNames() {
		domain, id, qualified := strings.Cut(full, "/")
		if !qualified {
			domain, id = n.search.fleet.Driver, full
		}
		all = append(all, Name{Domain: domain, ID: id})
	}
	for _, id := range kind.CapacityNames() {
		all = append(all, Name{n.search.fleet.Driver, string(id), true})
	}
	return all
}

// sameID returns the name of the vocabulary that differs only in its domain or in
// capital letters. It may also differ in being a capacity. It returns false if the name
// itself is known.
func sameID(vocabulary []Name, name Name) (Name, bool) {
	i := slices.IndexFunc(vocabulary, func(v Name) bool { return strings.EqualFold(v.ID, name.ID) })
	if i < 0 || slices.Contains(vocabulary, name) {
		return Name{}, false
	}
	return vocabulary[i], true
}

// instead returns the remedy for a name that is meant to be another.
func (n Name) instead(wrong Name) string {
	switch {
	case n.Capacity && !wrong.Capacity:
		amount := map[string]string{v1alpha1.CapacityMemory: "40Gi", v1alpha1.CapacityCompute: "100"}[n.ID]
		return fmt.Sprintf("%s is a capacity: write %s.compareTo(quantity('%s')) >= 0", n.ID, n.expression(), cmp.Or(amount, "4"))
	case !n.Capacity && wrong.Capacity:
		return fmt.Sprintf("%s is an attribute: write %s", n.ID, n.expression())
	default:
		return "write " + n.expression()
	}
}

// optional returns an expression that does not fail on devices without the name.
func (n Name) optional() string {
	text := n.expression()
	i := strings.LastIndexByte(text, '.')
	return text[:i] + ".?" + n.ID + ".orValue(…)"
}

func ofMIG(name Name) bool {
	return name.ID == v1alpha1.AttributeProfile || name.ID == v1alpha1.AttributeParentUUID
}

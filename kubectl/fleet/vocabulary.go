// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

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
	case slices.Contains(vocabulary, name) && name.Capacity && have == 0:
		return "no node offers devices that have it: chart value offer"
	case slices.Contains(vocabulary, name) && name.Capacity, !slices.Contains(vocabulary, name) && have > 0:
		return fmt.Sprintf("only %s it: select these first, or read %s", NumberVerb(have, "device", "has", "have"), name.optional())
	case slices.Contains(vocabulary, name) && have > 0:
		return n.someHave(name, have)
	case slices.Contains(vocabulary, name):
		return n.publish(name)
	}
	if similar, ok := nearest(vocabulary, name); ok {
		return fmt.Sprintf("did you mean %s?", similar.expression())
	}
	return "no device has it: " + gpu.Page("docs/user/attributes.md#attributes") + " lists the names"
}

// vocabulary returns the names that devices of this driver can have.
func (n *Names) vocabulary() []Name {
	var all []Name
	for _, full := range kind.AttributeNames() {
		domain, id, qualified := strings.Cut(full, "/")
		if !qualified {
			domain, id = n.driver, full
		}
		all = append(all, Name{Domain: domain, ID: id})
	}
	for _, id := range kind.CapacityNames() {
		all = append(all, Name{n.driver, string(id), true})
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

// someHave returns the remedy for an attribute that only some devices have.
func (n *Names) someHave(name Name, have int) string {
	text := fmt.Sprintf("only %s it: read %s", NumberVerb(have, "device", "has", "have"), name.optional())
	switch {
	case ofMIG(name):
		return text + ", or select MIG devices first, by their class"
	case n.level(name) == kind.LevelLean:
		return text
	default:
		return text + fmt.Sprintf(", and give all nodes the same chart value attributes, with %s", n.value(name))
	}
}

// publish returns the remedy for a known attribute that no device has.
func (n *Names) publish(name Name) string {
	const known = "known, but not published here: chart value "
	standard := n.published[Name{Domain: n.driver, ID: v1alpha1.AttributeDriverVersion}] > 0
	switch level := n.level(name); {
	case name.ID == v1alpha1.AttributeNVLinkCliques:
		return known + "listAttributes: true"
	case ofMIG(name):
		return "only MIG devices have it, and no node publishes one: chart value offer"
	case level == kind.LevelAll, level == kind.LevelStandard && !standard:
		return known + "attributes: [" + n.value(name) + "]"
	default:
		return "known, but no device reports it: no GPU here has a value"
	}
}

// value returns the words of the chart value attributes that publish the attribute.
func (n *Names) value(name Name) string {
	full := n.qualified(name)
	if n.published[Name{Domain: n.driver, ID: v1alpha1.AttributeDriverVersion}] == 0 {
		return string(kind.LevelLean) + ", " + full
	}
	return full
}

func (n *Names) level(name Name) kind.Level {
	level, _ := kind.LevelOf(resourceapi.QualifiedName(n.qualified(name)))
	return level
}

// qualified returns the name as the chart has it: names of the driver without a domain.
func (n *Names) qualified(name Name) string {
	if name.Domain == n.driver {
		return name.ID
	}
	return name.Domain + "/" + name.ID
}

func ofMIG(name Name) bool {
	return name.ID == v1alpha1.AttributeProfile || name.ID == v1alpha1.AttributeParentUUID
}

// nearest returns the name of the vocabulary with the least edit distance. The distance is
// at most a third of its letters.
func nearest(vocabulary []Name, name Name) (Name, bool) {
	best, least := Name{}, max(1, len(name.ID)/3)+1
	for _, v := range vocabulary {
		if d := Distance(strings.ToLower(v.ID), strings.ToLower(name.ID)); d < least {
			best, least = v, d
		}
	}
	return best, best != Name{}
}

// Distance returns the number of letters to insert, remove or replace to make b of a.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}

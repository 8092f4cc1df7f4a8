// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
)

// NameProblem is a selector or constraint that reads a name which devices lack.
type NameProblem struct {
	// Found is the fault, and Remedy the change that ends it.
	Found, Remedy string
	// Fails means that the selector fails on a device. This ends the scheduling of the pod
	// on all nodes. Otherwise no device meets the selector or constraint.
	Fails bool
}

// mostSelectors bounds the evaluated lists of selectors: claims of other parties have them.
const mostSelectors = 2000

// Names are the names that the devices of a cluster have. To evaluate selectors is work of its
// [Search]: methods of both must not run at the same time.
type Names struct {
	search *Search
	// shapes has one device for all devices of a driver with the same names, type and
	// profile: a selector fails on all of them or on none.
	shapes []shape
	// published is the number of devices with a name.
	published map[Name]int
	known     map[string][]NameProblem
	// interrupted is set if a list of selectors was not evaluated on all shapes.
	interrupted bool
}

type shape struct {
	driver, pool string
	device       resourceapi.Device
	count        int
}

// Names returns the names that the devices of the fleet have.
func (s *Search) Names() *Names {
	n := &Names{search: s, published: map[Name]int{}, known: map[string][]NameProblem{}}
	shapes := map[string]*shape{}
	for _, slice := range s.fleet.objects.Slices {
		for _, d := range slice.Spec.Devices {
			names := namesOf(slice.Spec.Driver, d)
			for _, name := range names {
				n.published[name]++
			}
			key := fmt.Sprint(slice.Spec.Driver, names, text(d, "type"), text(d, "profile"))
			if shapes[key] == nil {
				shapes[key] = &shape{driver: slice.Spec.Driver, pool: slice.Spec.Pool.Name, device: d}
			}
			shapes[key].count++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(shapes)) {
		n.shapes = append(n.shapes, *shapes[key])
	}
	return n
}

// namesOf returns the names of a device, sorted.
func namesOf(driver string, d resourceapi.Device) []Name {
	var names []Name
	for name := range d.Attributes {
		names = append(names, publishedName(driver, name, false))
	}
	for name := range d.Capacity {
		names = append(names, publishedName(driver, name, true))
	}
	slices.SortFunc(names, func(a, b Name) int { return strings.Compare(a.String(), b.String()) })
	return names
}

// publishedName returns a name as selectors read it. A name without a domain is of its driver's.
func publishedName(driver string, name resourceapi.QualifiedName, capacity bool) Name {
	domain, id, qualified := strings.Cut(string(name), "/")
	if !qualified {
		domain, id = driver, domain
	}
	return Name{domain, id, capacity}
}

func text(d resourceapi.Device, name resourceapi.QualifiedName) string {
	if value := d.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// Selectors returns the problems of selectors that a device must meet together. Those
// of a class come before those of a request. It returns none for devices that an
// earlier selector excludes, as in the scheduler, and none if ctx or the search ends.
func (n *Names) Selectors(ctx context.Context, expressions []string) []NameProblem {
	key := strings.Join(expressions, "\x00")
	problems, known := n.known[key]
	if known || n.Full() || len(n.shapes) == 0 {
		return problems
	}
	problems, examined := n.examine(ctx, expressions)
	if !examined {
		n.interrupted = true
		return nil
	}
	n.known[key] = problems
	return problems
}

// Full reports whether some selectors were not evaluated, because there are too many or the
// search has ended.
func (n *Names) Full() bool { return n.interrupted || len(n.known) == mostSelectors }

// examine returns the problems of selectors. examined is false if ctx or the search ended
// before all shapes were examined.
func (n *Names) examine(ctx context.Context, expressions []string) (_ []NameProblem, examined bool) {
	matched := false
	counts, first := map[NameProblem]int{}, map[NameProblem]shape{}
	for _, s := range n.shapes {
		if n.search.ended() {
			return nil, false
		}
		last, m := n.evaluate(ctx, s, expressions)
		if m.notExamined {
			return nil, false
		}
		matched = matched || m.selected
		if m.err == nil {
			continue // the API server refuses selectors that do not compile
		}
		p := NameProblem{Found: "it fails with " + firstLine(m.err), Remedy: "correct the selector " + last, Fails: true}
		if name, ok := missing(s, last, m.err); ok {
			p = NameProblem{Found: "it reads the " + name.String(), Remedy: n.advice(name), Fails: true}
		}
		counts[p] += s.count
		if _, has := first[p]; !has {
			first[p] = s
		}
	}
	var problems []NameProblem
	for p, count := range counts {
		example := first[p]
		p.Found += fmt.Sprintf(": %s cannot answer, such as %s of pool %s", Number(count, "device"), example.device.Name, example.pool)
		problems = append(problems, p)
	}
	slices.SortFunc(problems, func(a, b NameProblem) int { return strings.Compare(a.Found, b.Found) })
	if !matched && problems == nil {
		problems = n.unpublished(expressions)
	}
	return problems, true
}

// unpublished returns the problems of names that no device has. It leaves out names of
// devices that no node offers, such as MIG devices: the classes of the chart select these
// too.
func (n *Names) unpublished(expressions []string) []NameProblem {
	var problems []NameProblem
	for _, expression := range expressions {
		for _, name := range NamesIn(expression) {
			if n.published[name] == 0 && !name.Capacity && !ofMIG(name) {
				problems = append(problems, NameProblem{Found: "it reads the " + name.String() + ", which no device has", Remedy: n.advice(name)})
			}
		}
	}
	return problems
}

// evaluate returns the last selector that was evaluated on a device, and its result.
func (n *Names) evaluate(ctx context.Context, s shape, expressions []string) (last string, m match) {
	d := Device{ID: DeviceID{s.driver, s.pool, s.device.Name}, Published: &s.device}
	m.selected = true
	for _, last = range expressions {
		if m = n.search.evaluate(ctx, last, d, s.driver); !m.selected {
			break
		}
	}
	return last, m
}

// missing returns the name without which the selector fails on a device.
func missing(s shape, expression string, err error) (Name, bool) {
	has := namesOf(s.driver, s.device)
	for _, name := range NamesIn(expression) {
		if !slices.Contains(has, name) && strings.HasSuffix(firstLine(err), "no such key: "+name.ID) {
			return name, true
		}
	}
	return Name{}, false
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Constraint returns the problem of a constraint on an attribute that no device has.
func (n *Names) Constraint(attribute resourceapi.FullyQualifiedName) []NameProblem {
	name := publishedName("", resourceapi.QualifiedName(attribute), false)
	if n.published[name] > 0 || len(n.shapes) == 0 {
		return nil
	}
	return []NameProblem{{Found: "its constraint needs the " + name.String() + ", which no device has", Remedy: n.advice(name)}}
}

// Claim returns the problems of the selectors and constraints of a claim, each once. It
// evaluates the selectors of a request after those of its class; a class that does not exist
// has none.
func (n *Names) Claim(ctx context.Context, classes Classes, spec resourceapi.DeviceClaim) []NameProblem {
	var problems []NameProblem
	add := func(found []NameProblem) {
		for _, p := range found {
			AddOnce(&problems, p)
		}
	}
	for _, r := range Requests(spec) {
		var all []string
		if class, err := classes.Get(r.Exactly.DeviceClassName); err == nil {
			all = Expressions(class.Spec.Selectors)
		}
		add(n.Selectors(ctx, append(all, Expressions(r.Exactly.Selectors)...)))
	}
	for _, c := range spec.Constraints {
		for _, attribute := range []*resourceapi.FullyQualifiedName{c.MatchAttribute, c.DistinctAttribute} {
			if attribute != nil {
				add(n.Constraint(*attribute))
			}
		}
	}
	return problems
}

// Expressions returns the CEL expressions of selectors.
func Expressions(selectors []resourceapi.DeviceSelector) []string {
	var all []string
	for _, s := range selectors {
		if s.CEL != nil {
			all = append(all, s.CEL.Expression)
		}
	}
	return all
}

// ClaimNames returns the problems of the names that claims read, a sentence each with the
// remedy. The error wraps [ErrNotExamined] if the limit of the search left out selectors, or is
// the one of the context; the problems are then not all.
func (s *Search) ClaimNames(ctx context.Context, claims []*resourceapi.ResourceClaim) ([]string, error) {
	if s.ended() {
		return nil, s.notExamined("names in selectors")
	}
	names := s.Names()
	var all []string
	for _, claim := range claims {
		for _, p := range names.Claim(ctx, s.fleet.classes, claim.Spec.Devices) {
			all = append(all, fmt.Sprintf("claim %s: %s; %s", claim.Name, p.Found, p.Remedy))
		}
	}
	switch {
	case ctx.Err() != nil:
		return all, ctx.Err()
	case names.Full():
		return all, s.notExamined("names in selectors")
	default:
		return all, nil
	}
}

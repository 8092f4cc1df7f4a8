// SPDX-License-Identifier: Apache-2.0

package cordon

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

const (
	// managedBy is the label with the program that writes an object.
	managedBy = "app.kubernetes.io/managed-by"
	// manager is its value for rules of a cordon.
	manager = "kubectl-gpu"
	// prefix begins the names of rules.
	prefix = "gpu-cordon"
	// longest is the most characters of a reason.
	longest = 256
)

// CheckReason returns an error that wraps [gpu.ErrInvalid] unless the reason is one line
// of printable characters.
func CheckReason(reason string) error {
	switch {
	case utf8.RuneCountInString(reason) > longest:
		return fmt.Errorf("reason: %w: want at most %d characters", gpu.ErrInvalid, longest)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("reason: %w: want one line without control characters", gpu.ErrInvalid)
	}
	return nil
}

// Cordon is the rules that take a GPU out of use.
type Cordon struct {
	// Create lists the rules that are missing.
	Create []*resourceapi.DeviceTaintRule
	// Kept lists the rules that are as wanted.
	Kept []*resourceapi.DeviceTaintRule
}

// NewCordon compares the rules of the cluster with the rules that the cordon of a GPU needs. Existing
// rules keep their reason.
func NewCordon(t Target, existing []*resourceapi.DeviceTaintRule, reason string) Cordon {
	own := map[string]*resourceapi.DeviceTaintRule{}
	for _, rule := range Rules(existing, t.Name) {
		own[*rule.Spec.DeviceSelector.Device] = rule
	}
	var c Cordon
	for _, device := range t.Devices() {
		if rule := own[device]; rule != nil {
			c.Kept = append(c.Kept, rule)
		} else {
			c.Create = append(c.Create, newRule(t.Name, device, reason))
		}
	}
	return c
}

// newRule returns the rule for one device of a GPU.
func newRule(of Name, device, reason string) *resourceapi.DeviceTaintRule {
	rule := &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{
			Name:   ruleName(prefix, of, device),
			Labels: map[string]string{managedBy: manager, v1alpha1.LabelCordon: of.GPU},
		},
		Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: &resourceapi.DeviceTaintSelector{Driver: &of.Driver, Pool: &of.Node, Device: &device},
			Taint:          resourceapi.DeviceTaint{Key: v1alpha1.TaintCordoned, Value: v1alpha1.CordonedByAdministrator, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		},
	}
	if reason != "" {
		rule.Annotations = map[string]string{v1alpha1.AnnotationCordonReason: reason}
	}
	return rule
}

// ruleName returns the name of the rule for a device, which is the same for each cordon. A
// long name, or one for another driver, ends with a hash.
func ruleName(prefix string, of Name, device string) string {
	name := prefix + "." + device + "." + of.Node
	if of.Driver == v1alpha1.DriverName && len(name) <= validation.DNS1123SubdomainMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(of.Driver + "\n" + of.Node + "\n" + device))
	return prefix + "." + device + "." + hex.EncodeToString(sum[:8])
}

// Rules returns the rules of a GPU's cordon, in order of their names. It omits rules that
// other users or programs have written.
func Rules(existing []*resourceapi.DeviceTaintRule, of Name) []*resourceapi.DeviceTaintRule {
	own := slices.DeleteFunc(slices.Clone(existing), func(rule *resourceapi.DeviceTaintRule) bool { return !isOwn(rule, of) })
	slices.SortFunc(own, fleet.ByName[*resourceapi.DeviceTaintRule])
	return own
}

func isOwn(rule *resourceapi.DeviceTaintRule, of Name) bool {
	selector := rule.Spec.DeviceSelector
	is := func(have *string, want string) bool { return have != nil && *have == want }
	return rule.Labels[managedBy] == manager && rule.Labels[v1alpha1.LabelCordon] == of.GPU && rule.Spec.Taint.Key == v1alpha1.TaintCordoned &&
		selector != nil && is(selector.Driver, of.Driver) && is(selector.Pool, of.Node) && selector.Device != nil && fleet.GPUOf(*selector.Device) == of.GPU
}

// Cordoned returns the value of [v1alpha1.AnnotationCordoned] of a node with or without a GPU.
func Cordoned(old, device string, cordoned bool) string {
	names := strings.FieldsFunc(old, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	names = slices.DeleteFunc(names, func(name string) bool { return name == device })
	if cordoned {
		names = append(names, device)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

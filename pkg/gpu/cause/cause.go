// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// Cause is one reason why new claims do not get a device. It can also be one why the programs of a
// share do not compute. The texts are clauses without a
// capital and a full stop. NODE, GPU_NAME and ADDRESS in a remedy stand for the node, the device
// name of the GPU and its PCI address: see [Cause.For].
type Cause struct {
	// Key and Value are the taint, or of a share the condition of its claim and the reason. An empty
	// Value matches each value of the key.
	Key, Value string
	// Code is the stable name of the cause for users and documents, such as "xid-79".
	Code string
	// Meaning says what has happened to the GPU.
	Meaning string
	// Effect describes the consequence for programs that have the device now.
	Effect string
	// User is the remedy for the owner of a pod that has the device.
	User string
	// Admin is the remedy for the administrator of the node.
	Admin string
	// Ends says when the driver removes the taint or condition.
	Ends string
}

// Of returns the cause of a taint. ok is false if the taint is none of this driver's.
// A value that a newer agent publishes has the cause of its group: an unknown XID, an unknown
// recovery action, or an unknown fault.
func Of(key, value string) (c Cause, ok bool) {
	c, ok = row(key, value)
	if !ok || c.Value == value {
		return c, ok
	}
	c.Value = value
	if key == v1alpha1.TaintUnhealthy {
		c.Code = cmp.Or(value, c.Code)
	}
	return c, true
}

// row returns the row of a taint, or else that of its group.
func row(key, value string) (c Cause, ok bool) {
	for _, of := range table {
		switch {
		case of.Key != key:
		case of.Value == value:
			return of, true
		case ok:
			// The most specific group comes first in the table.
		case of.Value == "" || strings.HasSuffix(of.Value, "-") && strings.HasPrefix(value, of.Value):
			c, ok = of, true
		}
	}
	return c, ok
}

// Anchor returns the anchor of the cause, or of its group, in the documents.
func (c Cause) Anchor() string {
	entry, _ := row(c.Key, c.Value)
	return strings.TrimSuffix(entry.Code, "-")
}

// Unhealthy returns the cause of a value of the taint [v1alpha1.TaintUnhealthy]. A value that is
// not in the table has the cause of its group.
func Unhealthy(value string) Cause {
	c, _ := Of(v1alpha1.TaintUnhealthy, value)
	return c
}

// OfCode returns the cause with a code. A code that is not in the table has the cause of its
// group, as a value of [v1alpha1.TaintUnhealthy] has.
func OfCode(code string) Cause {
	if i := slices.IndexFunc(table, func(c Cause) bool { return c.Code == code }); i >= 0 {
		return table[i]
	}
	return Unhealthy(code)
}

// OfShare reports whether the cause is a condition of a share, and no taint.
func (c Cause) OfShare() bool { return !strings.Contains(c.Key, "/") }

// Known reports whether the table has a row for exactly this taint.
func Known(key, value string) bool {
	return slices.ContainsFunc(table, func(c Cause) bool { return c.Key == key && c.Value == value })
}

// Message returns the meaning for logs, status and refusals. It begins with the number of an
// XID, and contains the value of a cause that is only in a group.
func (c Cause) Message() string {
	if number, ok := strings.CutPrefix(c.Value, xidPrefix); ok && number != "" {
		return "XID " + number + ": " + c.Meaning
	}
	if !Known(c.Key, c.Value) {
		return c.Meaning + " (" + c.Value + ")"
	}
	return c.Meaning
}

// All returns the table: all causes in the order of the documents.
func All() []Cause { return slices.Clone(table) }

// For returns the cause with the given names in its remedies.
func (c Cause) For(node, gpu, address string) Cause {
	names := strings.NewReplacer("NODE", cmp.Or(node, "NODE"), "GPU_NAME", cmp.Or(gpu, "GPU_NAME"), "ADDRESS", cmp.Or(address, "ADDRESS"))
	c.User, c.Admin = names.Replace(c.User), names.Replace(c.Admin)
	return c
}

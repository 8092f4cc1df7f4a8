// SPDX-License-Identifier: Apache-2.0

package rows

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// OrDash returns the text, or a dash if it is empty.
func OrDash(s string) string { return cmp.Or(s, "-") }

// Gibibytes prints an amount of memory in Gi with one decimal.
func Gibibytes(q resource.Quantity) string {
	const unit = 1 << 30
	return Tenths(float64(q.Value())/unit) + "Gi"
}

// gibibytesOrDash prints an amount of memory; a dash if it is not known.
func gibibytesOrDash(q *resource.Quantity) string {
	if q == nil {
		return "-"
	}
	return Gibibytes(*q)
}

// promisedText prints an amount of memory that a claim gets; a dash if it gets none.
func promisedText(q resource.Quantity) string {
	if q.IsZero() {
		return "-"
	}
	return Gibibytes(q)
}

// Tenths prints a number with one decimal. Only nothing is 0.0.
func Tenths(number float64) string {
	if number > 0 && number < 0.05 {
		return "<0.1"
	}
	return fmt.Sprintf("%.1f", number)
}

// List returns the names as a text; the first ones and a number if they are many.
func List(names []string) string { return fleet.List(10, names) }

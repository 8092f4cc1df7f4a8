// SPDX-License-Identifier: Apache-2.0

package gpurows

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// OrDash returns the text, or a dash if it is empty.
func OrDash(s string) string { return cmp.Or(s, "-") }

// Gibibytes prints an amount of memory in Gi with one decimal.
func Gibibytes(q resource.Quantity) string {
	const unit = 1 << 30
	return fmt.Sprintf("%.1fGi", float64(q.Value())/unit)
}

// Count prints a number and its noun, such as "1 claim" or "2 claims".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// CountVerb prints a number, its noun and a verb, such as "1 device is" or "2 devices are".
func CountVerb(n int, noun, one, many string) string {
	if n == 1 {
		return Count(n, noun) + " " + one
	}
	return Count(n, noun) + " " + many
}

// List returns the names as a text; the first ones and a number if they are many.
func List(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

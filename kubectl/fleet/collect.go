// SPDX-License-Identifier: Apache-2.0

package fleet

import "slices"

// Each returns the results of a function for all items; nil without items.
func Each[T, R any](all []T, f func(T) R) []R {
	var results []R
	for _, item := range all {
		results = append(results, f(item))
	}
	return results
}

// AddOnce adds an item that the list does not have yet. It adds no zero value.
func AddOnce[T comparable](list *[]T, item T) {
	var zero T
	if item != zero && !slices.Contains(*list, item) {
		*list = append(*list, item)
	}
}

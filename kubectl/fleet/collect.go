// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each returns the results of a function for all items; nil without items.
func Each[T, R any](all []T, f func(T) R) []R {
	var results []R
	for _, item := range all {
		results = append(results, f(item))
	}
	return results
}

// First returns the first item that a function reports; nil if there is none.
func First[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// AddOnce adds an item that the list does not have yet. It adds no zero value.
func AddOnce[T comparable](list *[]T, item T) {
	var zero T
	if item != zero && !slices.Contains(*list, item) {
		*list = append(*list, item)
	}
}

// List returns names as a text: the first ones, and the number of others.
func List(most int, names []string) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// ByName orders objects by their namespaces and names.
func ByName[T metav1.Object](a, b T) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// FullName returns an object as "namespace/name".
func FullName[T metav1.Object](o T) string { return o.GetNamespace() + "/" + o.GetName() }

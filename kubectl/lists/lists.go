// SPDX-License-Identifier: Apache-2.0

// Package lists reads the objects of a cluster from the API server, page by page.
package lists

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
)

// Of returns the list function of a client for the pager.
func Of[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// Into lists objects, and replaces those in to. They are from the cache of an API server, and can be old.
func Into[T any](ctx context.Context, to *[]T, list pager.ListPageFunc) error {
	return into(ctx, "0", to, list)
}

func into[T any](ctx context.Context, version string, to *[]T, list pager.ListPageFunc) error {
	*to = nil
	return pager.New(list).EachListItem(ctx, metav1.ListOptions{ResourceVersion: version}, func(o runtime.Object) error {
		if item, ok := o.(T); ok {
			*to = append(*to, item)
		}
		return nil
	})
}

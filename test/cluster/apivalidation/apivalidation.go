// SPDX-License-Identifier: Apache-2.0

// Package apivalidation judges ResourceSlices the way the API server of the
// pinned Kubernetes does when they are created: the same strategy, conversion,
// hand-written and declarative rules. It is for golden files and property
// tests of what the driver publishes.
//
// Out of scope: everything that only the allocator checks, such as references
// to counters in other slices.
package apivalidation

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/resource"
	_ "k8s.io/kubernetes/pkg/apis/resource/install" // the scheme of the API server
	"k8s.io/kubernetes/pkg/registry/resource/resourceslice"
)

// ErrDropped marks fields that the API server would drop without a word
// because their feature gate is off.
var ErrDropped = errors.New("fields would be dropped: their feature gate is off")

// Validate returns the error with which the API server would refuse to create a slice,
// or nil. It returns [ErrDropped] if the slice would be stored without some of its
// fields. The feature gates are the pinned release's defaults; a test changes them with
// k8s.io/component-base/featuregate/testing.
func Validate(ctx context.Context, slice *resourcev1.ResourceSlice) error {
	created := slice.DeepCopy()
	legacyscheme.Scheme.Default(created)
	var internal resource.ResourceSlice
	if err := legacyscheme.Scheme.Convert(created, &internal, nil); err != nil {
		return fmt.Errorf("ResourceSlice %s: convert: %w", slice.Name, err)
	}
	// What the API server fills in before it judges.
	rest.FillObjectMetaSystemFields(&internal)
	if internal.Name == "" && internal.GenerateName != "" {
		internal.Name = resourceslice.Strategy.GenerateName(internal.GenerateName)
	}
	asked := internal.DeepCopy()
	// The version in the request selects the declarative rules.
	ctx = genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(ctx, metav1.NamespaceNone), &genericapirequest.RequestInfo{
		IsResourceRequest: true,
		Verb:              "create",
		APIGroup:          resourcev1.GroupName,
		APIVersion:        resourcev1.SchemeGroupVersion.Version,
		Resource:          "resourceslices",
	})
	err := rest.BeforeCreate(resourceslice.Strategy, ctx, &internal)
	if !apiequality.Semantic.DeepEqual(asked.Spec, internal.Spec) {
		err = errors.Join(fmt.Errorf("%w (-asked +stored):\n%s", ErrDropped, cmp.Diff(asked.Spec, internal.Spec)), err)
	}
	if err != nil {
		return fmt.Errorf("ResourceSlice %s: %w", asked.Name, err)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the apiVersion of every kind of this package.
const GroupVersion = GroupName + "/v1alpha1"

// The kinds of this package.
const (
	KindGpuConfig   = "GpuConfig"
	KindMigConfig   = "MigConfig"
	KindShareConfig = "ShareConfig"
	KindDeviceData  = "DeviceData"
)

// SchemeGroupVersion returns the group and version of this package.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// AddToScheme registers the kinds of this package in a scheme. Importing the
// package registers nothing.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(addKnownTypes)
	return builder.AddToScheme(scheme)
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion(), &GpuConfig{}, &MigConfig{}, &ShareConfig{}, &DeviceData{})
	return nil
}

// typeMeta returns the apiVersion and kind of an object of this package.
func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: GroupVersion, Kind: kind}
}

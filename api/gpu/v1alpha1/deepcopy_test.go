// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestDeepCopyReturnsAnEqualObjectThatSharesNothing(t *testing.T) {
	for _, object := range []runtime.Object{&GpuConfig{}, &MigConfig{}, &ShareConfig{}, &DeviceData{}} {
		fill(reflect.ValueOf(object).Elem())
		copied := object.DeepCopyObject()
		require.Same(t, fmt.Sprintf("%T: copy", object), object, copied)
		originals := map[uintptr]bool{}
		pointers(reflect.ValueOf(object), func(p uintptr) { originals[p] = true })
		pointers(reflect.ValueOf(copied), func(p uintptr) {
			if originals[p] {
				t.Errorf("%T: the copy shares memory with the original", object)
			}
		})
	}
}

func TestDeepCopyOfNilIsNil(t *testing.T) {
	if (*GpuConfig)(nil).DeepCopy() != nil || (*MigConfig)(nil).DeepCopy() != nil || (*ShareConfig)(nil).DeepCopy() != nil || (*DeviceData)(nil).DeepCopy() != nil {
		t.Error("got an object, want nil")
	}
}

// fill sets every field of v to a value other than zero.
func fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[resource.Quantity]() {
		v.Set(reflect.ValueOf(resource.MustParse("10Gi")))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("text")
	case reflect.Int:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("fill has no value of the type " + v.Type().String())
	}
}

// pointers calls seen for every pointer in v.
func pointers(v reflect.Value, seen func(uintptr)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			seen(v.Pointer())
			pointers(v.Elem(), seen)
		}
	case reflect.Slice:
		if v.Len() > 0 {
			seen(v.Pointer())
		}
		for i := range v.Len() {
			pointers(v.Index(i), seen)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			pointers(v.Field(i), seen)
		}
	default:
	}
}

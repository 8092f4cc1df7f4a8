package v1alpha1

import (
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDeepCopiesAreEqualAndShareNothing(t *testing.T) {
	files, err := filepath.Glob("testdata/valid/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		config, err := Decode(parametersIn(t, file))
		if err != nil {
			t.Fatal(err)
		}
		var copied Config
		switch c := config.(type) {
		case *GpuConfig:
			copied = c.DeepCopy()
		case *MigConfig:
			copied = c.DeepCopy()
		case *ShareConfig:
			copied = c.DeepCopy()
		}
		if diff := cmp.Diff(config, copied); diff != "" {
			t.Errorf("%s: copy (-want +got):\n%s", file, diff)
		}
		originals := map[uintptr]bool{}
		pointers(reflect.ValueOf(config), func(p uintptr) { originals[p] = true })
		pointers(reflect.ValueOf(copied), func(p uintptr) {
			if originals[p] {
				t.Errorf("%s: the copy shares memory with the original", file)
			}
		})
	}
}

func TestACopyOfNothingIsNothing(t *testing.T) {
	if (*GpuConfig)(nil).DeepCopy() != nil || (*MigConfig)(nil).DeepCopy() != nil || (*ShareConfig)(nil).DeepCopy() != nil {
		t.Error("got something")
	}
}

// pointers calls seen with all that v points to.
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

// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestAddToSchemeRegistersEveryKind(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	for _, kind := range []string{v1alpha1.KindGpuConfig, v1alpha1.KindMigConfig, v1alpha1.KindShareConfig, v1alpha1.KindDeviceData} {
		object, err := scheme.New(v1alpha1.SchemeGroupVersion().WithKind(kind))
		if err != nil {
			t.Error(err)
			continue
		}
		if got := reflect.TypeOf(object).Elem().Name(); got != kind {
			t.Errorf("the kind %s makes a %s", kind, got)
		}
	}
}

// The vocabulary of hardware, which imports nothing of Kubernetes, has these values
// too.
func TestValuesEqualTheHardwareVocabulary(t *testing.T) {
	if v1alpha1.MaxProcesses != gpu.MPSMaxClients {
		t.Errorf("MaxProcesses is %d, MPS admits %d", v1alpha1.MaxProcesses, gpu.MPSMaxClients)
	}
	intervals, slices := v1alpha1.Intervals(), gpu.TimeSlices()
	if len(intervals) != len(slices) {
		t.Fatalf("the intervals are %q, the hardware has %q", intervals, slices)
	}
	for i, interval := range intervals {
		if string(interval) != string(slices[i]) {
			t.Errorf("interval %d is %q, the hardware has %q", i, interval, slices[i])
		}
	}
}

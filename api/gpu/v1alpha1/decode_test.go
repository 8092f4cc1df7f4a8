package v1alpha1

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func TestDecodeReadsAGpuConfig(t *testing.T) {
	got, err := Decode([]byte(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Config(&GpuConfig{TypeMeta: metav1.TypeMeta{APIVersion: GroupVersion, Kind: KindGpuConfig}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeSaysWhatIsWrongAndWhatIsSupported(t *testing.T) {
	for name, c := range map[string]struct{ parameters, want string }{
		"nothing":                  {``, "unexpected end of JSON input"},
		"null":                     {`null`, `parameters.apiVersion: invalid: ""`},
		"a list":                   {`[]`, "cannot unmarshal array"},
		"cut off":                  {`{"apiVersion": "gpu.nvidia`, "unexpected end of JSON input"},
		"two documents":            {`{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"GpuConfig"} {}`, "after top-level value"},
		"a number for a version":   {`{"apiVersion": 1}`, "TypeMeta.apiVersion of type string"},
		"an unknown version":       {`{"apiVersion": "gpu.nvidia.com/v9", "kind": "GpuConfig"}`, `parameters.apiVersion: invalid: "gpu.nvidia.com/v9"`},
		"another driver's group":   {`{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}`, `parameters.apiVersion: invalid: "resource.nvidia.com/v1beta1"`},
		"an unknown kind":          {`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GPUConfig"}`, `parameters.kind: invalid: "GPUConfig"`},
		"an unknown field":         {`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "sharring": {}}`, `unknown field "sharring"`},
		"a field in another case":  {`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "Kind": "GpuConfig"}`, `unknown field "Kind"`},
		"the same field twice":     {`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "kind": "GpuConfig"}`, `duplicate field "kind"`},
		"more than the API allows": {`{"apiVersion": "` + strings.Repeat("x", 10<<10) + `"}`, "at most 10240 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(c.parameters))
			if got != nil || !errors.Is(err, gpu.ErrInvalid) {
				t.Fatalf("got %v, %v, want an error that is %v", got, err, gpu.ErrInvalid)
			}
			text := fmt.Sprint(err)
			if !strings.Contains(text, c.want) {
				t.Errorf("error %q does not say %q", text, c.want)
			}
			if !strings.Contains(text, supported) && !strings.Contains(text, "allowed") {
				t.Errorf("error %q does not say what is supported", text)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"GpuConfig"}`))
	f.Add([]byte(`{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"GpuConfig","x":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Decode(data)
		if (config == nil) != (err != nil) {
			t.Errorf("%q: both or neither of %v and %v", data, config, err)
		}
		if err != nil && !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("%q: %v is not %v", data, err, gpu.ErrInvalid)
		}
	})
}

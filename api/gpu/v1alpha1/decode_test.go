// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// Each testdata/valid/*.yaml holds parameters; the .golden file of the same name holds
// the decoded configuration with its defaults.
func TestDecodeSetsDefaults(t *testing.T) {
	each(t, "valid", func(t *testing.T, parameters []byte) string {
		config, err := Decode(parameters)
		must(t, err)
		text, err := yaml.Marshal(config)
		must(t, err)
		return string(text)
	})
}

// Each testdata/invalid/*.yaml holds parameters; the .golden file of the same name
// holds the error.
func TestInvalidExamplesReturnTheFieldAndItsValues(t *testing.T) {
	each(t, "invalid", func(t *testing.T, parameters []byte) string {
		config, err := Decode(parameters)
		if config != nil || err == nil {
			t.Fatalf("got %v, %v, want an error and nothing else", config, err)
		}
		return err.Error() + "\n"
	})
}

func each(t *testing.T, folder string, decoded func(*testing.T, []byte) string) {
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no examples", err)
	}
	for _, file := range files {
		t.Run(strings.ReplaceAll(strings.TrimSuffix(filepath.Base(file), ".yaml"), "-", " "), func(t *testing.T) {
			got := decoded(t, parametersIn(t, file))
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if os.Getenv("UPDATE_GOLDEN") != "" {
				must(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must(t, err)
			require.Same(t, golden, string(want), got)
		})
	}
}

// parametersIn returns an example as the API server passes it on.
func parametersIn(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	parameters, err := yaml.YAMLToJSON(text)
	must(t, err)
	return parameters
}

func TestDecodeRejectsOtherDocuments(t *testing.T) {
	for name, c := range map[string]struct{ parameters, want string }{
		"nothing":                  {``, "unexpected end of JSON input"},
		"null":                     {`null`, `apiVersion: Unsupported value: ""`},
		"a list":                   {`[]`, "document: must be an object, not array"},
		"cut off":                  {`{"apiVersion": "gpu.nvidia`, "unexpected end of JSON input"},
		"two documents":            {`{"apiVersion":"gpu.nvidia.com/v1alpha1","kind":"GpuConfig"} {}`, "after top-level value"},
		"a number for a version":   {`{"apiVersion": 1}`, "apiVersion: must be a string, not number"},
		"a field in another case":  {`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "Kind": "GpuConfig"}`, `unknown field "Kind"`},
		"the same field twice":     {`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "kind": "GpuConfig"}`, `duplicate field "kind"`},
		"a device twice":           {`{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPerDevicePinnedMemoryLimit": {"0": "1Gi", "0": "2Gi"}}}}`, `duplicate field "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit.0"`},
		"more than the API allows": {`{"apiVersion": "` + strings.Repeat("x", 10<<10) + `"}`, "at most 10240 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Decode([]byte(c.parameters))
			if got != nil || err == nil || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %v, %v, want an error that says %q", got, err, c.want)
			}
		})
	}
}

// Parameters can have 10 KiB. Their errors are events of a pod, one line each.
func TestErrorsAreOneShortLine(t *testing.T) {
	long := strings.Repeat("0=10G,\n", 1400)
	config := func(kind string, fields map[string]any) []byte {
		fields["apiVersion"], fields["kind"] = GroupVersion, kind
		parameters, err := json.Marshal(fields)
		must(t, err)
		return parameters
	}
	many := map[string]any{}
	for i := range 500 {
		many[fmt.Sprintf("\n%d", i)] = i
	}
	limits := map[string]any{}
	for i := range 20 {
		limits[fmt.Sprintf("%d%.200s", i, long)] = fmt.Sprintf("%.200s", long)
	}
	mps := func(fields map[string]any) map[string]any {
		return map[string]any{"sharing": map[string]any{"strategy": "MPS", "mps": fields}}
	}
	for name, parameters := range map[string][]byte{
		"a long kind":           config(long, map[string]any{}),
		"a long field":          config(KindGpuConfig, map[string]any{long: 1}),
		"a long strategy":       config(KindShareConfig, map[string]any{"strategy": long}),
		"a long quantity":       config(KindGpuConfig, mps(map[string]any{"memoryLimit": long})),
		"a long number":         config(KindShareConfig, map[string]any{"processes": json.Number("1" + strings.Repeat("0", 10000))}),
		"a long device":         config(KindGpuConfig, mps(map[string]any{"perDevice": []any{map[string]any{"device": long}}})),
		"many limits of NVIDIA": []byte(strings.Replace(string(config(KindGpuConfig, map[string]any{"sharing": map[string]any{"strategy": "MPS", "mpsConfig": map[string]any{"defaultPerDevicePinnedMemoryLimit": limits}}})), GroupVersion, nvidiaGroupVersion, 1)),
		"many unknown fields":   config(KindShareConfig, many),
		"many nameless devices": config(KindGpuConfig, mps(map[string]any{"perDevice": make([]struct{}, 3000)})),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(parameters)
			if err == nil {
				t.Fatal("no error")
			}
			checkText(t, err)
		})
	}
}

func checkText(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	if len(text) > 1024 {
		t.Errorf("%d bytes do not fit an event: %.200s", len(text), text)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		t.Errorf("%q is more than a line", text)
	}
}

// The time to parse a quantity grows with its exponent, so a claim could block an
// agent.
func TestQuantitiesAreParsedQuickly(t *testing.T) {
	done := make(chan bool, 1)
	go func() {
		_, ours := Decode([]byte(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mps": {"memoryLimit": "1e-999999999"}}}`))
		_, nvidia := Decode([]byte(`{"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "1e-999999999"}}}`))
		done <- ours != nil && nvidia != nil
	}()
	select {
	case refused := <-done:
		if !refused {
			t.Error("the quantity is accepted")
		}
	case <-time.After(time.Minute):
		t.Fatal("still parsing")
	}
}

func TestIndexReturnsFalseForAUUID(t *testing.T) {
	if index, ok := DeviceRef("12").Index(); index != 12 || !ok {
		t.Errorf("got %d, %v", index, ok)
	}
	if _, ok := DeviceRef("GPU-6e2cb7f4-3f09-5a2f-8b6c-0a1b2c3d4e5f").Index(); ok {
		t.Error("a UUID is not an index")
	}
}

func FuzzDecode(f *testing.F) {
	for _, folder := range []string{"valid", "invalid"} {
		files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
		must(f, err)
		for _, file := range files {
			f.Add(parametersIn(f, file))
		}
	}
	device := regexp.MustCompile(`^([0-9]{1,4}|(GPU|MIG)-[0-9a-f-]{36})$`)
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := Decode(data)
		if (config == nil) != (err != nil) {
			t.Fatalf("%q: both or neither of %v and %v", data, config, err)
		}
		if err != nil {
			checkText(t, err)
			return
		}
		written, err := json.Marshal(config)
		must(t, err)
		again, err := Decode(written)
		if err != nil {
			t.Fatalf("%q: %s: %v", data, written, err)
		}
		require.Same(t, fmt.Sprintf("%q: written and read again", data), config, again)
		var mps *MPS
		switch c := config.(type) {
		case *GpuConfig:
			if c.Sharing != nil {
				mps = c.Sharing.MPS
			}
		case *MigConfig:
			if c.Sharing != nil {
				mps = c.Sharing.MPS
			}
		}
		if mps == nil {
			return
		}
		// The limits become environment variables of a container.
		limits := mps.PerDevice
		if mps.MemoryLimit != nil {
			limits = append(limits, DeviceLimit{Device: "0", MemoryLimit: *mps.MemoryLimit})
		}
		for _, l := range limits {
			if value := l.MemoryLimit.Value(); value < mebi || value%mebi != 0 || !device.MatchString(string(l.Device)) {
				t.Errorf("%q: a limit of %s for %q", data, l.MemoryLimit.String(), l.Device)
			}
		}
	})
}

var must = require.NoError

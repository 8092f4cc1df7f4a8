// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"archive/tar"
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// filled returns a value with a secret in each field, which names the field.
func filled[T any](root string) *T {
	value := new(T)
	fill(reflect.ValueOf(value).Elem(), root)
	return value
}

func secretIn(path string) string { return "SECRET<" + path + ">" }

func fill(v reflect.Value, path string) {
	switch special := v.Addr().Interface().(type) {
	case *runtime.RawExtension:
		special.Raw = []byte(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "password": "` + secretIn(path) + `"}`)
		return
	case *resource.Quantity:
		*special = resource.MustParse("1")
		return
	case *metav1.Time, *metav1.MicroTime:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(secretIn(path))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(secretIn(path)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), path+"[]")
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, path+"{key}")
		fill(value, path+"{}")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				name := path
				if !field.Anonymous || field.Name == "ObjectMeta" {
					name += "." + field.Name
				}
				fill(v.Field(i), name)
			}
		}
	}
}

// filesOf returns the files that write adds to an archive.
func filesOf(t *testing.T, write func(*dump)) map[string]string {
	t.Helper()
	var archive bytes.Buffer
	d := &dump{tar: tar.NewWriter(&archive), now: time.Now()}
	write(d)
	require.NoError(t, d.err)
	require.NoError(t, d.tar.Close())
	files := map[string]string{}
	reader := tar.NewReader(&archive)
	for header, err := reader.Next(); err == nil; header, err = reader.Next() {
		text, err := io.ReadAll(reader)
		require.NoError(t, err)
		files[strings.TrimPrefix(header.Name, "gpu-sysdump/")] = string(text)
	}
	return files
}

// The golden file lists the fields of a sysdump whose text users or other programs write. A
// field that a new release of Kubernetes adds appears there: does it belong into a bug report?
func TestFieldsInASysdump(t *testing.T) {
	of := func(name string) *corev1.Pod {
		pod := filled[corev1.Pod](name)
		pod.Namespace = "gpus"
		return pod
	}
	driverPod, pod := of("DriverPod"), of("Pod")
	driverPod.Labels[doctor.NameLabel] = doctor.ChartName
	objects := fleet.Objects{
		Nodes: []*corev1.Node{filled[corev1.Node]("Node")}, Pods: []*corev1.Pod{driverPod, pod},
		Claims: []*resourceapi.ResourceClaim{filled[resourceapi.ResourceClaim]("ResourceClaim")}, Classes: []*resourceapi.DeviceClass{filled[resourceapi.DeviceClass]("DeviceClass")},
		Slices: []*resourceapi.ResourceSlice{filled[resourceapi.ResourceSlice]("ResourceSlice")}, TaintRules: []*resourceapi.DeviceTaintRule{filled[resourceapi.DeviceTaintRule]("DeviceTaintRule")},
	}
	client := server(shared(t))
	client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.EventList{Items: []corev1.Event{*filled[corev1.Event]("Event")}}, nil
	})
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.ConfigMapList{Items: []corev1.ConfigMap{*filled[corev1.ConfigMap]("ConfigMap")}}, nil
	})
	v := &view{Cluster: rows.New(objects, "gpu.nvidia.com", nil), reader: reader{client: client}}
	files := filesOf(t, func(d *dump) {
		d.cluster(v)
		// The driver's own pod is among the users' pods, because it has claims here.
		d.driver(t.Context(), v, []string{"gpus"})
	})
	found := map[string]bool{}
	for file, text := range files {
		for _, m := range regexp.MustCompile(`SECRET<([^>]*)>`).FindAllStringSubmatch(text, -1) {
			found[file+": "+m[1]] = true
		}
	}
	if len(files) < 9 {
		t.Errorf("got the files %v", slices.Sorted(maps.Keys(files)))
	}
	got := strings.Join(slices.Sorted(maps.Keys(found)), "\n") + "\n"
	golden := filepath.Join("testdata", "sysdump-fields.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden) //nolint:gosec // a file of the tree
	require.NoError(t, err)
	require.Same(t, "the fields of a sysdump, make generate accepts them", string(want), got)
	for field := range found {
		for _, secret := range []string{"Parameters", "Data{", "Labels", "Annotations", "ManagedFields", "NetworkData", ".Env[].Value", "Addresses", "Images", "MachineID"} {
			if strings.Contains(field, secret) && !slices.ContainsFunc(labelled(), func(prefix string) bool { return strings.Contains(field, prefix) }) {
				t.Errorf("a sysdump has %s", field)
			}
		}
	}
}

// labelled returns fields with labels that are not secret: of objects of administrators and
// drivers, on which scheduling depends, and the driver's settings.
func labelled() []string {
	return []string{
		": Node.ObjectMeta.Labels", ": DeviceClass.ObjectMeta.Labels", ": DeviceTaintRule.ObjectMeta.Labels", ": ResourceSlice.ObjectMeta.Labels",
		": DriverPod.ObjectMeta.Labels", ": Event.ObjectMeta.Labels", ": ConfigMap.ObjectMeta.Labels", ": ConfigMap.Data{",
	}
}

func TestParametersInASysdump(t *testing.T) {
	const ours, other = "gpu.nvidia.com", "other.example.com"
	config := func(driver, json string) *resourceapi.OpaqueDeviceConfiguration {
		return &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(json)}}
	}
	for name, tc := range map[string]struct {
		driver, json string
		kept         bool
	}{
		"ours":                          {ours, `{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "ShareConfig", "text": "hunter2"}`, true},
		"of another driver":             {other, `{"apiVersion": "other.example.com/v1", "text": "hunter2"}`, false},
		"our kind for another driver":   {other, `{"apiVersion": "gpu.nvidia.com/v1alpha1", "text": "hunter2"}`, false},
		"another kind for our driver":   {ours, `{"apiVersion": "v1", "kind": "Secret", "text": "hunter2"}`, false},
		"our group as a part of a name": {ours, `{"apiVersion": "evil.gpu.nvidia.com/v1", "text": "hunter2"}`, false},
		"no object":                     {ours, `["hunter2"]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := shared(t)
			w.Classes[0].Spec.Config = []resourceapi.DeviceClassConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: config(tc.driver, tc.json)}}}
			claim := w.Claims[0]
			claim.Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: config(tc.driver, tc.json)}}}
			claim.Status.Allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: config(tc.driver, tc.json)}}}
			claim.Status.Devices = []resourceapi.AllocatedDeviceStatus{{Driver: tc.driver, Data: &runtime.RawExtension{Raw: []byte(tc.json)}}}
			v := &view{Cluster: rows.New(fleet.Objects{Classes: w.Classes, Claims: w.Claims}, "gpu.nvidia.com", nil)}
			files := filesOf(t, func(d *dump) { d.cluster(v) })
			for file, want := range map[string]int{"cluster/deviceclasses.yaml": 1, "cluster/resourceclaims.yaml": 3} {
				if !tc.kept {
					want = 0
				}
				if got := strings.Count(files[file], "hunter2"); got != want {
					t.Errorf("%s has the text %d times, want %d:\n%s", file, got, want, files[file])
				}
			}
		})
	}
}

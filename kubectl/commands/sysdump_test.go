// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet/fleettest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// unpack returns the files of an archive.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name) //nolint:gosec // a file of the test
	require.NoError(t, err)
	defer file.Close() //nolint:errcheck // only read
	zipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[strings.TrimPrefix(header.Name, "gpu-sysdump/")] = string(text)
	}
}

// secretive returns a cluster with a secret in each field that users may write.
func secretive(t *testing.T) *fleettest.World {
	w := shared(t)
	const secret = "hunter2"
	agent := fleettest.Pod("agent")
	agent.Namespace, agent.Labels = "gpu-dra-driver", map[string]string{doctor.NameLabel: doctor.ChartName}
	agent.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "TOKEN", Value: secret}}
	agent.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: 1}}
	pending := fleettest.Pod("pending")
	pending.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node"}}
	w.Pods, w.Claims = append(w.Pods, agent, pending), append(w.Claims, fleettest.Claim("pending", "count=9"))
	for _, pod := range w.Pods {
		pod.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": secret}
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: secret}}
	}
	user := w.Pods[0]
	container := &user.Spec.Containers[0]
	container.Env, container.Args, container.Command, container.Image = []corev1.EnvVar{{Name: "KEY", Value: secret}}, []string{secret}, []string{secret}, secret
	user.Spec.Volumes = []corev1.Volume{{Name: secret}}
	user.Labels = map[string]string{"team": secret}
	w.Claims[0].Spec.Devices.Config = []resourceapi.DeviceClaimConfiguration{
		{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "other.example.com", Parameters: runtime.RawExtension{Raw: []byte(`{"password": "` + secret + `"}`)}}}},
		{DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: "gpu.nvidia.com", Parameters: runtime.RawExtension{Raw: []byte(`{"apiVersion": "gpu.nvidia.com/v1alpha1", "kind": "ShareConfig", "strategy": "MPS"}`)}}}},
	}
	return w
}

func TestSysdump(t *testing.T) {
	w := secretive(t)
	w.Pods[0].Spec.NodeName, w.Pods[0].Status.Phase = "a", corev1.PodPending
	client := server(w)
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
	})
	name := filepath.Join(t.TempDir(), "dump.tar.gz")
	out, problems := run(t, client, "sysdump", "--driver-namespace", "gpu-dra-driver", "--to", name)
	if !strings.HasPrefix(out, name+"\nRead it before you publish it") || !strings.Contains(problems, "Cannot list the configmaps of namespace gpu-dra-driver") {
		t.Errorf("got %q, %q", out, problems)
	}
	files := unpack(t, name)
	for file, want := range map[string]string{
		"cluster/resourceslices.yaml":         "name: gpu-3b-00",
		"cluster/resourceclaims.yaml":         "strategy: MPS",
		"cluster/pods.yaml":                   "name: pending",
		"cluster/nodes.yaml":                  "name: a",
		"cluster/deviceclasses.yaml":          "name: mps.nvidia.com",
		"driver/pods.yaml":                    "value: (left out)",
		"driver/logs/agent-main.log":          "fake logs",
		"driver/logs/agent-main-previous.log": "fake logs",
		"output/get.txt":                      "gpu-3b-00",
		"output/explain-default-pending.txt":  "2 of 9 devices",
		"output/explain-default-whole.txt":    "claim whole has",
		"output/doctor.yaml":                  "check: ",
		"problems.txt":                        "Cannot list the configmaps",
		"versions.yaml":                       "kubectlGPU:",
	} {
		if !strings.Contains(files[file], want) {
			t.Errorf("%s lacks %q:\n%s", file, want, files[file])
		}
	}
	for file, text := range files {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s has a secret:\n%s", file, text)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, problems := run(t, client, "sysdump", "--driver-namespace", "gpu-dra-driver", "--to", name); !strings.Contains(problems, "file exists") {
		t.Errorf("a second archive of the name: %q", problems)
	}
}

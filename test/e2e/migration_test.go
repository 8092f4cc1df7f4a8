// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestMigrationOfManifestsForNVIDIAsDriver(t *testing.T) {
	runOn(t, "gpu-07-00", "test/e2e/testdata/dgx-a100-40gb.yaml", "--offer=share,mig", "--mig-allow-reset")
	stories := []struct {
		file, namespace string
		check           func(*testing.T, scene)
	}{
		{"gpu-test1.yaml", "nvidia-test1", func(t *testing.T, s scene) { s.own(t, "pod-0/main", "pod-1/main") }},
		{"gpu-test2.yaml", "nvidia-test2", func(t *testing.T, s scene) { s.together(t, "pod/first", "pod/second") }},
		{"gpu-test3.yaml", "nvidia-test3", func(t *testing.T, s scene) { s.together(t, "pod-0/main", "pod-1/main") }},
		{"gpu-test4.yaml", "nvidia-test4", migrationMIG},
		{"gpu-test5.yaml", "nvidia-test5", migrationTwoWays},
		{"gpu-test6.yaml", "nvidia-test6", migrationSelected},
		{"gpu-test7.yaml", "nvidia-test7", func(t *testing.T, s scene) { s.own(t, "pod/first", "pod/second") }},
		{"gpu-test-count.yaml", "nvidia-count", func(t *testing.T, s scene) {
			if got := s.sees(t, "pod/main"); len(got) != 2 {
				t.Errorf("the container sees %v, want two GPUs", got)
			}
		}},
		{"gpu-test-mps.yaml", "nvidia-mps", func(t *testing.T, s scene) {
			s.together(t, "pod/mps-0", "pod/mps-1")
			s.halves(t, "pod/mps-0", "pod/mps-1")
		}},
		{"extended-gpu.yaml", "nvidia-extended-gpu", func(t *testing.T, s scene) { s.own(t, "pod/main") }},
		{"extended-mig.yaml", "nvidia-extended-mig", func(t *testing.T, s scene) {
			if uuid := s.rows(t)["pod/main"][0].UUID; !strings.HasPrefix(uuid, "MIG-") {
				t.Errorf("the container has %s, want a MIG device", uuid)
			}
		}},
		{"memory-sharing.yaml", "nvidia-memory", migrationMemory},
	}
	t.Run("every manifest is tried", func(t *testing.T) {
		var tried []string
		for _, story := range stories {
			tried = append(tried, story.file)
		}
		if diff := cmp.Diff(manifests(t, "nvidia-dra"), tried, sorted); diff != "" {
			t.Errorf("(-there +tried):\n%s", diff)
		}
	})
	for _, story := range stories {
		t.Run(story.file, func(t *testing.T) {
			ns := namespaceFor(t, story.namespace)
			cleared(t, "deviceclass/mig-1g-5gb.gpu.nvidia.com")
			if story.file == "memory-sharing.yaml" {
				letShare(t)
			}
			apply(t, "", filepath.Join("demo/migration/nvidia-dra", story.file))
			story.check(t, scene{ns, allReady(t, ns)})
		})
	}
	t.Run("selectors on the attributes of NVIDIA's driver", func(t *testing.T) {
		ns := namespaceFor(t, "nvidia-names")
		apply(t, ns, claim("names", namesRequest, "")+pod("names", "names", ""))
		ready(t, ns, "names")
	})
}

// namesRequest reads every attribute that NVIDIA's driver publishes of a GPU, without a
// check for its presence. The selectors of its end-to-end suite do so.
const namesRequest = `
selectors:
- cel:
    expression: >-
      device.attributes['gpu.nvidia.com'].type == 'gpu' &&
      device.attributes['gpu.nvidia.com'].uuid.startsWith('GPU-') &&
      device.attributes['gpu.nvidia.com'].productName.contains('A100') &&
      device.attributes['gpu.nvidia.com'].brand == 'Nvidia' &&
      device.attributes['gpu.nvidia.com'].architecture == 'Ampere' &&
      device.attributes['gpu.nvidia.com'].cudaComputeCapability.isGreaterThan(semver('7.5.0')) &&
      device.attributes['gpu.nvidia.com'].addressingMode in ['None', 'HMM', 'ATS']
- cel:
    expression: device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('550.0.0'))
- cel:
    expression: device.attributes['gpu.nvidia.com'].cudaDriverVersion.isGreaterThan(semver('12.0.0'))
- cel:
    expression: >-
      device.attributes['resource.kubernetes.io'].pciBusID.startsWith('0000:') &&
      device.attributes['resource.kubernetes.io'].pcieRoot.startsWith('pci0000:')
`

func TestMigrationOfPodsForTheDevicePlugin(t *testing.T) {
	runOn(t, "gpu-07-00-ts", "dgx-a100", "--offer=share,mig,timeslice", "--mig-allow-reset")
	stories := map[string]func(*testing.T, scene){
		"gpu.yaml": func(t *testing.T, s scene) {
			one, two := s.sees(t, "one-gpu/main"), s.sees(t, "two-gpus/main")
			if len(one) != 1 || len(two) != 2 || slices.Contains(two, one[0]) {
				t.Errorf("the containers see %v and %v, want one GPU and two others", one, two)
			}
		},
		"gpu-shared.yaml": func(t *testing.T, s scene) { s.together(t, "shared-0/main", "shared-1/main") },
		"mig.yaml": func(t *testing.T, s scene) {
			rows := s.rows(t)
			seen := map[string]bool{}
			for container, profiles := range map[string][]string{"mig-small/main": {"1g-10gb"}, "mig-large/main": {"3g-40gb"}, "mig-two/main": {"1g-10gb", "1g-10gb"}} {
				if len(rows[container]) != len(profiles) {
					t.Errorf("%s has %v, want %v", container, rows[container], profiles)
				}
				for i, row := range rows[container] {
					if !strings.Contains(row.Device, profiles[i]) || seen[row.UUID] {
						t.Errorf("%s has %s (%s), want a %s of its own", container, row.Device, row.UUID, profiles[i])
					}
					seen[row.UUID] = true
				}
			}
		},
	}
	for _, file := range manifests(t, "device-plugin") {
		t.Run(file, func(t *testing.T) {
			check, known := stories[file]
			if !known {
				t.Fatal("no test knows this manifest")
			}
			ns := namespaceFor(t, "plugin-"+strings.TrimSuffix(file, ".yaml"))
			apply(t, ns, filepath.Join("demo/migration/device-plugin", file))
			check(t, scene{ns, allReady(t, ns)})
		})
	}
}

// letShare lets the class of whole GPUs give shares until the test ends. The chart
// may have labelled it not to.
func letShare(t *testing.T) {
	t.Helper()
	const label = "gpu.nvidia.com/shares"
	class, err := cluster.Client.ResourceV1().DeviceClasses().Get(t.Context(), "gpu.nvidia.com", metav1.GetOptions{})
	must(t, err)
	before, labelled := class.Labels[label]
	if !labelled {
		return
	}
	set := func(ctx context.Context, value string) {
		_, err := cluster.Kubectl(ctx, "label", "deviceclass", "gpu.nvidia.com", "--overwrite", value)
		must(t, err)
	}
	set(t.Context(), label+"-")
	t.Cleanup(func() { set(context.WithoutCancel(t.Context()), label+"="+before) })
}

// manifests of a folder of the migration demo.
func manifests(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(cluster.Root, "demo/migration", folder))
	must(t, err)
	var files []string
	for _, entry := range entries {
		files = append(files, entry.Name())
	}
	return files
}

// allReady waits until the pods of the namespace are, those of Deployments too.
func allReady(t *testing.T, ns string) []string {
	t.Helper()
	deployments, err := cluster.Kubectl(t.Context(), "get", "deployments", "-n", ns, "-o", "name")
	must(t, err)
	for _, deployment := range strings.Fields(deployments) {
		kubectl(t, "rollout", "status", "-n", ns, "--timeout=2m", deployment)
	}
	pods, err := cluster.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	ready(t, ns, names...)
	return names
}

// scene is the running pods of a manifest.
type scene struct {
	namespace string
	pods      []string
}

// rows are the devices of each "pod/container".
func (s scene) rows(t *testing.T) map[string][]harness.Row {
	t.Helper()
	all, err := cluster.Report(t.Context(), s.namespace)
	must(t, err)
	rows := map[string][]harness.Row{}
	for _, row := range all {
		rows[row.Pod+"/"+row.Container] = append(rows[row.Pod+"/"+row.Container], row)
	}
	return rows
}

func (s scene) sees(t *testing.T, container string) []string {
	t.Helper()
	pod, name, _ := strings.Cut(container, "/")
	sight, err := cluster.Sight(t.Context(), s.namespace, pod, name)
	must(t, err)
	return sight.GPUs()
}

// own reports an error unless each container sees a GPU, and no two the same.
func (s scene) own(t *testing.T, containers ...string) {
	t.Helper()
	holders := map[string]string{}
	for _, container := range containers {
		saw := s.sees(t, container)
		if len(saw) != 1 {
			t.Errorf("%s sees %v, want one GPU", container, saw)
			continue
		}
		if other := holders[saw[0]]; other != "" {
			t.Errorf("%s and %s both see %s", container, other, saw[0])
		}
		holders[saw[0]] = container
	}
}

// together reports an error unless the containers see one GPU, the same.
func (s scene) together(t *testing.T, containers ...string) {
	t.Helper()
	first := s.sees(t, containers[0])
	for _, container := range containers {
		if saw := s.sees(t, container); len(saw) != 1 || saw[0] != first[0] {
			t.Errorf("%s sees %v, and %s %v, want one GPU", containers[0], first, container, saw)
		}
	}
}

// halves reports an error unless the containers' CUDA processes have half of the
// multiprocessors and 10Gi as limits. They must also have got 8Gi.
func (s scene) halves(t *testing.T, containers ...string) {
	t.Helper()
	for _, container := range containers {
		pod, name, _ := strings.Cut(container, "/")
		client, err := cluster.CUDA(t.Context(), s.namespace, pod, name)
		must(t, err)
		if !client.MPS || client.Client.ActiveThreadPercentage != 50 || client.Limit() != 10*gi || client.AllocatedBytes != 8*gi {
			t.Errorf("%s is held to %v %% and %d bytes and has got %d, want 50 %%, 10Gi and 8Gi; refused: %q",
				container, client.Client.ActiveThreadPercentage, client.Limit(), client.AllocatedBytes, client.Error.Name)
		}
	}
}

func migrationMIG(t *testing.T, s scene) {
	rows, seen, parents := s.rows(t), map[string]bool{}, map[string]bool{}
	for _, pod := range s.pods {
		for container, profile := range map[string]string{"small-0": "1g-5gb", "small-1": "1g-5gb", "medium": "2g-10gb", "large": "3g-20gb"} {
			held := rows[pod+"/"+container]
			if len(held) != 1 || !strings.Contains(held[0].Device, profile) {
				t.Fatalf("%s of %s has %v, want one %s", container, pod, held, profile)
			}
			if parent(held[0].Device) != parent(rows[pod+"/large"][0].Device) {
				t.Errorf("%s has %s, which is of another GPU", pod, held[0].Device)
			}
			if !strings.HasPrefix(held[0].UUID, "MIG-") || seen[held[0].UUID] {
				t.Errorf("%s of %s has %s, want a MIG device of its own", container, pod, held[0].UUID)
			}
			seen[held[0].UUID] = true
			// Its own two capabilities, and no other's.
			if len(held[0].Saw) != 3 {
				t.Errorf("%s of %s sees %v, want its GPU and two capabilities", container, pod, held[0].Saw)
			}
		}
		parents[parent(rows[pod+"/large"][0].Device)] = true
	}
	if len(parents) != 4 {
		t.Errorf("the pods are on %v, want four GPUs", parents)
	}
}

func migrationTwoWays(t *testing.T, s scene) {
	s.together(t, "pod/ts-0", "pod/ts-1")
	s.together(t, "pod/mps-0", "pod/mps-1")
	s.own(t, "pod/ts-0", "pod/mps-0")
	s.halves(t, "pod/mps-0", "pod/mps-1")
	if got := interval(t, s.rows(t)["pod/ts-0"][0].UUID); got != "Long" {
		t.Errorf("the time slice is %s, want Long", got)
	}
	for _, container := range []string{"ts-0", "ts-1"} {
		if client, err := cluster.CUDA(t.Context(), s.namespace, "pod", container); err != nil || client.MPS {
			t.Errorf("%s is a client of MPS: %t (%v), want it to have time slices", container, client.MPS, err)
		}
	}
}

func migrationSelected(t *testing.T, s scene) {
	var got []string
	for _, rows := range s.rows(t) {
		got = append(got, rows[0].Device)
		if slice := interval(t, rows[0].UUID); slice != "Long" {
			t.Errorf("the time slice of %s is %s, want Long", rows[0].Device, slice)
		}
	}
	require.Same(t, "GPUs", []string{"gpu-07-00", "gpu-47-00", "gpu-87-00", "gpu-b7-00"}, got, sorted)
}

func migrationMemory(t *testing.T, s scene) {
	var rows []harness.Row
	for container, held := range s.rows(t) {
		rows = append(rows, held...)
		pod, name, _ := strings.Cut(container, "/")
		client, err := cluster.CUDA(t.Context(), s.namespace, pod, name)
		must(t, err)
		if !client.MPS || client.Limit() > 4*gi || client.AllocatedBytes != 3*gi {
			t.Errorf("%s is held to %d bytes and has got %d, want at most 4Gi and 3Gi; refused: %q", pod, client.Limit(), client.AllocatedBytes, client.Error.Name)
		}
	}
	oneGPU(t, rows...)
}

// taintedInUse returns the devices with the taint of an external allocation.
func taintedInUse(ctx context.Context) ([]string, error) {
	devices, err := cluster.Devices(ctx)
	var names []string
	for name, device := range devices {
		for _, taint := range device.Taints {
			if taint.Key == "gpu.nvidia.com/in-use" && taint.Value == "device-plugin" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names, err
}

func allocatable(ctx context.Context, name corev1.ResourceName) (int64, error) {
	node, err := cluster.Client.CoreV1().Nodes().Get(ctx, cluster.NodeName, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	quantity := node.Status.Allocatable[name]
	return quantity.Value(), nil
}

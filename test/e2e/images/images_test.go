// SPDX-License-Identifier: Apache-2.0

// Package images tries the container images on a real cluster: that programs
// run in them with as little as they say they need, find the NVIDIA driver's
// library, and bring the CDI hook to the host.
//
// Out of scope: what the driver does for pods, which test/e2e tries; how images
// are made, which tools/images tests.
package images

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

var archives = flag.String("images", "../../../.build/images", "folder with the archives that `make images` makes")

// The cluster with all images; set once by TestMain.
var cluster *harness.Cluster

func TestMain(m *testing.M) {
	harness.Main(m, "images", func(ctx context.Context, c *harness.Cluster) error {
		cluster = c
		c.Images = *archives
		if err := c.LoadImages(ctx); err != nil {
			return err
		}
		return c.CreateNamespace(ctx, "default")
	})
}

// container returns a container of the named image with the strictest rules for
// pods, apart from the user. It sees the pod's folder of the host.
func container(image, mountPath string, args ...string) corev1.Container {
	return corev1.Container{
		Name: "c", Image: cluster.References[image], ImagePullPolicy: corev1.PullNever, Args: args,
		SecurityContext: &corev1.SecurityContext{
			ReadOnlyRootFilesystem:   ptr.To(true),
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "host", MountPath: mountPath}},
	}
}

// create makes a pod of containers that come after each other and see the
// folder of the host.
func create(t *testing.T, name, dir string, containers ...corev1.Container) {
	t.Helper()
	last := len(containers) - 1
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		AutomountServiceAccountToken:  ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(1)),
		Containers:                    containers[last:],
		Volumes:                       []corev1.Volume{{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}}},
	}
	for n, c := range containers[:last] {
		c.Name = fmt.Sprintf("init%d", n)
		spec.InitContainers = append(spec.InitContainers, c)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	if _, err := cluster.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// run runs such a pod to its end and returns what its containers printed.
func run(t *testing.T, name, dir string, containers ...corev1.Container) string {
	t.Helper()
	create(t, name, dir, containers...)
	var phase corev1.PodPhase
	err := harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		pod, err := cluster.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		phase = pod.Status.Phase
		return phase == corev1.PodSucceeded || phase == corev1.PodFailed, fmt.Sprintf("%+v", pod.Status), nil
	})
	must(t, err)
	out, err := cluster.Kubectl(t.Context(), "logs", name, "--all-containers")
	must(t, err)
	if phase != corev1.PodSucceeded {
		t.Fatalf("pod %s failed:\n%s", name, out)
	}
	return out
}

// simulatedDriver returns a container that makes the pod's folder, or one in it, the root
// of a simulated driver.
func simulatedDriver(mountPath, root, model string) corev1.Container {
	c := container("gpu-sim", mountPath, "create", "--state="+root, "--model="+model)
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"MKNOD"}
	return c
}

func TestTheAgentPrintsSlicesWithoutRoot(t *testing.T) {
	dir := t.TempDir()
	printSlices := func(root string) []string {
		return []string{"--print-slices", "--driver-root=" + root, "--machine-root=" + root, "--node-name=n"}
	}
	c := container("gpu-kubelet-plugin", "/driver", printSlices("/driver")...)
	c.SecurityContext.RunAsNonRoot, c.SecurityContext.RunAsUser, c.SecurityContext.RunAsGroup = ptr.To(true), ptr.To(int64(65532)), ptr.To(int64(65532))
	run(t, "driver", dir, simulatedDriver("/driver", "/driver", "dgx-h100"))
	got := run(t, "slices", dir, c)
	want, err := exec.CommandContext(t.Context(), filepath.Join(cluster.Bin, "gpu-kubelet-plugin"), printSlices(dir)...).Output()
	must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("slices (-on the host +in the container):\n%s", diff)
	}
}

// The driver's libraries ask for parts of the C library that ours do not.
func TestTheAgentLoadsTheLibraryOfADriver(t *testing.T) {
	root := t.TempDir()
	must(t, os.Mkdir(filepath.Join(root, "usr"), 0o755))
	must(t, os.Mkdir(filepath.Join(root, "usr/lib64"), 0o755))
	cc := exec.CommandContext(t.Context(), "cc", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-Wl,--no-as-needed",
		"-o", filepath.Join(root, "usr/lib64/libnvidia-ml.so.1"), "../../../pkg/node/nvml/testdata/olddriver.c",
		"-l:libpthread.so.0", "-l:libm.so.6", "-l:libdl.so.2", "-l:librt.so.1", "-l:libgcc_s.so.1")
	if out, err := cc.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out := run(t, "nvml", root, container("gpu-kubelet-plugin", "/driver", "--print-slices", "--driver-root=/driver", "--node-name=n"))
	if !strings.Contains(out, "Tesla V100-SXM2-32GB") {
		t.Errorf("published:\n%s", out)
	}
}

func TestTheHookGetsToTheHostRunsThereAndGoesWithTheAgent(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "registry"), 0o755))
	// No API server listens there; the program must serve the kubelet nevertheless.
	kubeconfig := `{"kind":"Config","apiVersion":"v1","current-context":"c","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`
	must(t, os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(kubeconfig), 0o600))
	create(t, "agent", dir, container("gpu-kubelet-plugin", "/host",
		"--driver-root=/host/driver", "--kubeconfig=/host/kubeconfig", "--node-name=n", "--http-listen=", "--mps-supervisor=", "--kubelet-pod-resources=",
		"--kubelet-plugins-dir=/host/plugins", "--kubelet-registry-dir=/host/registry", "--cdi-dir=/host/cdi"))
	wantFiles(t, "it serves", filepath.Join(dir, "registry/*"), 1)

	// On a host with nothing else: no loader, no C library.
	hook := exec.CommandContext(t.Context(), "/nvidia-cdi-hook", "create-symlinks", "--help")
	hook.SysProcAttr = &syscall.SysProcAttr{Chroot: filepath.Join(dir, "plugins/gpu.nvidia.com/agent")}
	hook.Dir, hook.Env = "/", []string{}
	if out, err := hook.CombinedOutput(); err != nil || !strings.Contains(string(out), "symlinks") {
		t.Errorf("the hook on the host: %v\n%s", err, out)
	}

	// As an agent's pod ends, and not within the second of these pods.
	must(t, cluster.Client.CoreV1().Pods("default").Delete(t.Context(), "agent", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(30))}))
	wantFiles(t, "its last agent has gone", filepath.Join(dir, "plugins/*"), 0)
}

// wantFiles waits until n files match the pattern.
func wantFiles(t *testing.T, when, pattern string, n int) {
	t.Helper()
	err := harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		found, err := filepath.Glob(pattern)
		return len(found) == n, fmt.Sprintf("there is %q", found), err
	})
	if err != nil {
		t.Fatalf("when %s: want %d of %s: %v", when, n, pattern, err)
	}
}

// The agent starts the driver's nvidia-smi in its own container, which has no shell.
func TestASimulatedDriversProgramsRunInTheImageOfTheAgent(t *testing.T) {
	smi := func(args ...string) corev1.Container {
		c := container("gpu-kubelet-plugin", "/driver", args...)
		c.Command = []string{"/driver/usr/bin/nvidia-smi"}
		return c
	}
	out := run(t, "sim", t.TempDir(), simulatedDriver("/driver", "/driver", "t4"),
		smi("compute-policy", "--set-timeslice=1", "-i", "0"), smi("compute-policy", "--list"))
	if !strings.Contains(out, "Short") {
		t.Errorf("printed:\n%s", out)
	}
}

func TestTheSupervisorAnswersInItsContainer(t *testing.T) {
	dir := t.TempDir()
	c := container("gpu-mps-supervisor", "/run/mps",
		"--driver-root=/run/mps/driver", "--run-dir=/run/mps", "--socket=/run/mps/s", "--log-dir=/run/mps/log")
	// The privileges that it requires.
	c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true), ReadOnlyRootFilesystem: ptr.To(true)}
	create(t, "supervisor", dir, simulatedDriver("/run/mps", "/run/mps/driver", "t4"), c)
	must(t, cluster.WaitReady(t.Context(), "default", "supervisor"))
	err := harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
		out, err := cluster.Kubectl(ctx, "exec", "supervisor", "--", "/usr/bin/gpu-mps-supervisor", "status", "--socket=/run/mps/s", "-o", "json")
		return err == nil, out, nil
	})
	must(t, err)
}

func TestTheProbeRunsAsTheUserOfItsImage(t *testing.T) {
	c := container("gpu-probe", "/mnt", "once")
	// The kubelet refuses an image whose user is root or has no number.
	c.SecurityContext.RunAsNonRoot = ptr.To(true)
	out := run(t, "probe", t.TempDir(), c)
	var sight harness.Sight
	if err := json.Unmarshal([]byte(out), &sight); err != nil || len(sight.GPUs()) != 0 || sight.Env == nil {
		t.Errorf("error %v, printed:\n%s", err, out)
	}
}

var must = require.NoError

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/pkg/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/test/harness"
)

const gpusAtOnce = 8

// bench holds the objects of a run in the cluster and on the disk.
type bench struct {
	options
	// cdiDir is on a tmpfs, as /var/run/cdi is on a node.
	cdiDir string
	// root is the driver root of a simulated node.
	root string
	// group is a cgroup of version 2 for agents, as the container of an agent has one. It is
	// empty on a machine without that version.
	group     string
	client    kubernetes.Interface
	node      string
	namespace string
}

func newBench(ctx context.Context, client kubernetes.Interface, o options) (*bench, error) {
	b := &bench{options: o, client: client}
	var err error
	if b.dir, err = os.MkdirTemp(o.dir, "gpu-bench-"); err != nil {
		return nil, err
	}
	if b.cdiDir, err = os.MkdirTemp("/dev/shm", "gpu-bench-cdi-"); err != nil {
		return nil, err
	}
	for _, dir := range []string{"plugins", "registry", "state"} {
		if err := os.Mkdir(filepath.Join(b.dir, dir), 0o755); err != nil {
			return nil, err
		}
	}
	// Servers of MPS have the users of their clients.
	if err := os.Chmod(b.dir, 0o711); err != nil {
		return nil, err
	}
	b.root = filepath.Join(b.dir, "sim")
	if err := harness.CreateNode(ctx, b.bin, b.root, b.model); err != nil {
		return nil, err
	}
	if cgroups, err := cgroup.Root(); err == nil {
		if b.group, err = os.MkdirTemp(cgroups, "gpu-bench-agent-"); err != nil {
			return nil, err
		}
	}
	node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-bench-"},
		Spec:       corev1.NodeSpec{Unschedulable: true},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create a node object: %w", err)
	}
	b.node = node.Name
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-bench-"},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create a namespace: %w", err), b.close(ctx))
	}
	b.namespace = namespace.Name
	return b, nil
}

// close removes the folder, the cgroup, the namespace with its claims, the slices and the
// node object.
func (b *bench) close(ctx context.Context) error {
	errs := []error{os.RemoveAll(b.dir), os.RemoveAll(b.cdiDir), b.deleteSlices(ctx)}
	if b.group != "" {
		errs = append(errs, os.Remove(b.group))
	}
	if b.namespace != "" {
		errs = append(errs, b.client.CoreV1().Namespaces().Delete(ctx, b.namespace, metav1.DeleteOptions{}))
	}
	return errors.Join(append(errs, b.client.CoreV1().Nodes().Delete(ctx, b.node, metav1.DeleteOptions{}))...)
}

func (b *bench) deleteSlices(ctx context.Context) error {
	return b.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{},
		metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + b.node})
}

// measure measures all figures.
func (b *bench) measure(ctx context.Context) (figures, error) {
	var f figures
	progress("starting the agent %d times on a node without slices", b.starts)
	// The first start reads the program from the disk and is not measured.
	for i := range b.starts + 1 {
		if err := b.deleteSlices(ctx); err != nil {
			return f, err
		}
		a, published, err := b.start(ctx)
		if err != nil {
			return f, err
		}
		if i > 0 {
			f.Start = append(f.Start, published)
		}
		if err := a.stop(); err != nil {
			return f, err
		}
	}

	a, _, err := b.start(ctx)
	if err != nil {
		return f, err
	}
	defer a.kill()
	if f.ResidentIdle, err = a.resident(); err != nil {
		return f, err
	}
	devices, err := b.devices(ctx)
	if err != nil {
		return f, err
	}
	if len(devices) < gpusAtOnce {
		return f, fmt.Errorf("model %s has %d GPUs, want at least %d", b.model, len(devices), gpusAtOnce)
	}
	progress("preparing and unpreparing %d claims, one at a time", b.rounds)
	for i := range b.rounds {
		if err := b.round(ctx, a, devices[i%len(devices)], &f); err != nil {
			return f, err
		}
	}
	progress("preparing %d claims on %d GPUs at once, %d times", gpusAtOnce, gpusAtOnce, b.bursts)
	for range b.bursts {
		if err := b.burst(ctx, a, devices[:gpusAtOnce], &f); err != nil {
			return f, err
		}
	}
	if f.Resident, err = a.resident(); err != nil {
		return f, err
	}
	if err := a.stop(); err != nil {
		return f, err
	}
	if err := b.measureLibrary(ctx, &f); err != nil {
		return f, err
	}
	if err := b.measureShares(ctx, &f); err != nil {
		return f, err
	}
	if err := b.measureLimits(ctx, &f); err != nil {
		return f, err
	}
	return f, b.measurePartitions(ctx, &f)
}

// devices returns the names of the published devices, in order.
func (b *bench) devices(ctx context.Context) ([]string, error) {
	list, err := b.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: resourceapi.ResourceSliceSelectorNodeName + "=" + b.node})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, slice := range list.Items {
		for _, device := range slice.Spec.Devices {
			names = append(names, device.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// durableWrite measures the yardstick: the time to write 2 kB to this disk and sync it.
func (b *bench) durableWrite() (time.Duration, error) {
	dir := filepath.Join(b.dir, "state")
	data := make([]byte, 2048)
	start := time.Now()
	file, err := os.CreateTemp(dir, "yardstick-")
	if err != nil {
		return 0, err
	}
	if _, err := file.Write(data); err != nil {
		return 0, err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return 0, err
	}
	final := filepath.Join(dir, "yardstick")
	if err := os.Rename(file.Name(), final); err != nil {
		return 0, err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return 0, err
	}
	return time.Since(start), os.Remove(final)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gpu-dra/gpu-dra-driver/pkg/node/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// model is the simulated node. Its GPUs change their MIG mode without a reset.
	model      = "dgx-h100"
	gpusAtOnce = 8
)

// bench holds the objects of a run in the cluster and on the disk.
type bench struct {
	options
	dir string
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

func newBench(ctx context.Context, client kubernetes.Interface, o options) (_ *bench, err error) {
	b := &bench{options: o, client: client}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close(context.WithoutCancel(ctx)))
		}
	}()
	if b.dir, err = os.MkdirTemp("", "gpu-bench-"); err != nil {
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
	if err := harness.CreateNode(ctx, b.bin, b.root, model); err != nil {
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
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	b.namespace = namespace.Name
	return b, nil
}

// close removes the folder, the cgroup, the namespace with its claims, the slices and the
// node object.
func (b *bench) close(ctx context.Context) error {
	errs := []error{os.RemoveAll(b.dir), os.RemoveAll(b.cdiDir)}
	if b.group != "" {
		errs = append(errs, os.Remove(b.group))
	}
	if b.namespace != "" {
		errs = append(errs, b.client.CoreV1().Namespaces().Delete(ctx, b.namespace, metav1.DeleteOptions{}))
	}
	// Slices without a node may be those of other drivers.
	if b.node != "" {
		errs = append(errs, b.deleteSlices(ctx), b.client.CoreV1().Nodes().Delete(ctx, b.node, metav1.DeleteOptions{}))
	}
	return errors.Join(errs...)
}

func (b *bench) deleteSlices(ctx context.Context) error {
	return b.client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, b.ofNode())
}

// measure measures all figures of our agent.
func (b *bench) measure(ctx context.Context) (*figures, error) {
	d := newAgent(b, "our agent", b.program())
	f := &d.figures
	r := runner{options: b.options, drivers: []*driver{d}}
	for _, measure := range []func() error{
		func() error { return r.measure(ctx) },
		func() error { return b.measureShares(ctx, f) },
		func() error { return b.measureLimits(ctx, f) },
	} {
		if err := measure(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// devices returns the published devices, in the order of their names.
func (b *bench) devices(ctx context.Context) ([]resourceapi.Device, error) {
	list, err := b.client.ResourceV1().ResourceSlices().List(ctx, b.ofNode())
	if err != nil {
		return nil, err
	}
	var devices []resourceapi.Device
	for _, slice := range list.Items {
		devices = append(devices, slice.Spec.Devices...)
	}
	slices.SortFunc(devices, func(a, b resourceapi.Device) int { return cmp.Compare(a.Name, b.Name) })
	return devices, nil
}

// deviceNames returns the names of the published devices, in order.
func (b *bench) deviceNames(ctx context.Context) ([]string, error) {
	devices, err := b.devices(ctx)
	var names []string
	for _, device := range devices {
		names = append(names, device.Name)
	}
	return names, err
}

// durableWrite is the yardstick of the disk: it writes 2 kB and syncs them.
func (b *bench) durableWrite() error {
	dir := filepath.Join(b.dir, "state")
	data := make([]byte, 2048)
	file, err := os.CreateTemp(dir, "yardstick-")
	if err != nil {
		return err
	}
	if _, err := file.Write(data); err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	final := filepath.Join(dir, "yardstick")
	if err := os.Rename(file.Name(), final); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return err
	}
	return os.Remove(final)
}

// SPDX-License-Identifier: Apache-2.0

// Command seconddriver runs DRA drivers that publish the devices of a YAML file. They
// prepare claims without touching hardware. On the test cluster it takes the place of the
// drivers of NICs and CPUs that a claim can align with its GPUs. Containers get the
// attributes of such devices as metadata; no NIC is attached and no CPU is pinned. It
// prints "serving" when the kubelet has registered all drivers.
//
//	seconddriver -devices FILE -node NAME -kubeconfig FILE -plugins DIR -registry DIR -cdi DIR
//
// dgx-h100.yaml has the NICs and CPUs of a DGX H100, in the shapes that
// kubernetes-sigs/dranet and kubernetes-sigs/dra-driver-cpu publish.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"sigs.k8s.io/yaml"
)

// spec is a driver in the file.
type spec struct {
	Driver  string               `json:"driver"`
	Devices []resourceapi.Device `json:"devices"`
}

type options struct {
	devices, node, kubeconfig, plugins, registry, cdi string
}

func main() {
	var o options
	flag.StringVar(&o.devices, "devices", "", "`FILE` with a list of drivers and their devices")
	flag.StringVar(&o.node, "node", "", "`NAME` of the node")
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "`FILE` of an administrator")
	flag.StringVar(&o.plugins, "plugins", "", "`DIR` of the kubelet's plugins")
	flag.StringVar(&o.registry, "registry", "", "`DIR` in which plugins register with the kubelet")
	flag.StringVar(&o.cdi, "cdi", "", "`DIR` with CDI specs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "seconddriver:", err)
		stop()
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	specs, err := read(o.devices)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	var helpers []*kubeletplugin.Helper
	for _, s := range specs {
		d := newDriver(s, o.node)
		dir := filepath.Join(o.plugins, s.Driver)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
		helper, err := kubeletplugin.Start(ctx, d,
			kubeletplugin.DriverName(s.Driver),
			kubeletplugin.NodeName(o.node),
			kubeletplugin.KubeClient(client),
			kubeletplugin.PluginDataDirectoryPath(dir),
			kubeletplugin.RegistrarDirectoryPath(o.registry),
			kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
			kubeletplugin.CDIDirectory(o.cdi),
			kubeletplugin.HealthService(false),
		)
		if err != nil {
			return fmt.Errorf("start the driver %s: %w", s.Driver, err)
		}
		defer helper.Stop()
		if err := helper.PublishResources(ctx, d.resources()); err != nil {
			return fmt.Errorf("publish the devices of %s: %w", s.Driver, err)
		}
		helpers = append(helpers, helper)
	}
	if err := waitRegistered(ctx, helpers); err != nil {
		return err
	}
	fmt.Println("serving", o.devices)
	<-ctx.Done()
	return nil
}

// waitRegistered waits until the kubelet has registered all drivers. A pod that starts
// before would be tried again only seconds later.
func waitRegistered(ctx context.Context, helpers []*kubeletplugin.Helper) error {
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		for _, h := range helpers {
			status := h.RegistrationStatus()
			if status != nil && status.Error != "" {
				return false, errors.New("register with the kubelet: " + status.Error)
			}
			if status == nil || !status.PluginRegistered {
				return false, nil
			}
		}
		return true, nil
	})
}

func read(file string) ([]spec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var specs []spec
	if err := yaml.UnmarshalStrict(text, &specs); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(specs) == 0 {
		return nil, errors.New("read " + file + ": it names no driver")
	}
	return specs, nil
}

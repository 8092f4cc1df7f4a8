// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

const testDriverName = "sanity.example.com"

// testDriver is the smallest driver that passes, but for one fault.
type testDriver struct {
	fault   string
	records string

	mu    sync.Mutex
	open  []*os.File
	asked map[types.UID]bool
}

// record is what the driver keeps of a prepared claim, in a file with the claim's UID as its name.
type record struct {
	Devices []kubeletplugin.Device
}

// runTestDriver is the program that the tests start.
func runTestDriver(ctx context.Context, fault string) error {
	data := filepath.Join(os.Getenv("PLUGINS_DIR"), testDriverName)
	if _, err := os.Stat(data); fault == "ends at its start" || fault == "starts once" && err == nil {
		return errors.New("the fault")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	if fault == "ignores SIGTERM" {
		ctx = context.WithoutCancel(ctx)
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	d := &testDriver{fault: fault, records: filepath.Join(data, "claims"), asked: map[types.UID]bool{}}
	if err := os.MkdirAll(d.records, 0o755); err != nil {
		return err
	}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(testDriverName), kubeletplugin.KubeClient(client), kubeletplugin.NodeName(os.Getenv("NODE_NAME")),
		kubeletplugin.PluginDataDirectoryPath(data), kubeletplugin.RegistrarDirectoryPath(os.Getenv("REGISTRY_DIR")),
		kubeletplugin.GRPCInterceptor(d.intercept), kubeletplugin.CDIDirectory(os.Getenv("CDI_DIR")),
		kubeletplugin.EnableDeviceMetadata(fault != "has no metadata", []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.MetadataFileOps(d.files()),
		kubeletplugin.HealthV1(fault != "has a health stream of v1alpha1"),
	}
	if fault != "has one socket, late" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(os.Getenv("POD_UID"))))
	} else if sockets, _ := os.ReadDir(os.Getenv("REGISTRY_DIR")); len(sockets) > 0 {
		_ = sleep(ctx, 3*time.Second) // longer than the test waits after a start
	}
	helper, err := kubeletplugin.Start(ctx, d, options...)
	if err != nil {
		return err
	}
	defer helper.Stop()
	devices := []resourceapi.Device{}
	for i := range 4 {
		devices = append(devices, resourceapi.Device{Name: fmt.Sprintf("device-%d", i), Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("1Gi")}}})
	}
	switch fault {
	case "has a long name":
		devices[0].Name = strings.Repeat("d", 64)
	case "has no device":
		devices = nil
	case "has one device":
		devices = devices[:1]
	}
	publish := func(devices []resourceapi.Device) error {
		return helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
			os.Getenv("NODE_NAME"): {Slices: []resourceslice.Slice{{Devices: devices}}},
		}})
	}
	if fault == "withdraws its devices at its start" {
		if err := client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.driver=" + testDriverName}); err != nil {
			return err
		}
	}
	if err := publish(devices); err != nil {
		return err
	}
	away := false
	for i := 0; ctx.Err() == nil; i++ {
		_ = sleep(ctx, 200*time.Millisecond) // the loop sees the end
		switch fault {
		case "publishes a clock":
			now := int64(i)
			devices[0].Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"now": {IntValue: &now}}
			if err := publish(devices); err != nil {
				return err
			}
		case "withdraws its devices after an outage":
			_, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
			if err == nil && away {
				err = client.ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			}
			away = err != nil
		case "ends without its slices":
			const published = 20 // the helper needs a moment
			list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
			if err != nil || i > published && len(list.Items) == 0 {
				os.Exit(1)
			}
		}
	}
	return nil
}

// intercept has the faults of calls that the helper refuses by itself.
func (d *testDriver) intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	prepare, ok := request.(*drapb.NodePrepareResourcesRequest)
	if ok && len(prepare.Claims) == 0 {
		return nil, status.Error(codes.InvalidArgument, "a call without a claim")
	}
	answer, err := handle(ctx, request)
	if !ok || err == nil {
		return answer, err
	}
	switch d.fault {
	case "is unavailable":
		return nil, status.Error(codes.Unavailable, err.Error())
	case "ends at a bad claim":
		os.Exit(1)
	case "accepts bad claims":
		accepted := &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{}}
		for _, claim := range prepare.Claims {
			accepted.Claims[claim.Uid] = &drapb.NodePrepareResourceResponse{}
		}
		return accepted, nil
	}
	return nil, err
}

func (d *testDriver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	var devices []kubeletplugin.DeviceHealth
	switch d.fault {
	case "has a health stream of v1alpha1":
		devices = []kubeletplugin.DeviceHealth{{PoolName: os.Getenv("NODE_NAME"), DeviceName: "device-0"}}
	case "reports the health of others":
		devices = []kubeletplugin.DeviceHealth{{PoolName: "other", DeviceName: "other"}}
	case "reports no health":
	default:
		return kubeletplugin.ErrHealthNotSupported
	}
	reports <- kubeletplugin.DeviceHealthReport{Devices: devices}
	<-ctx.Done()
	return nil
}

// files are the operations on metadata files. A write leaves no temporary file if the driver is killed.
func (d *testDriver) files() kubeletplugin.MetadataFileOperations {
	operations := kubeletplugin.MetadataFileOperations{WriteFile: func(path string, text []byte, _ os.FileMode) error {
		if d.fault == "describes other devices" {
			text = bytes.ReplaceAll(text, []byte(`"device-`), []byte(`"other-`))
		}
		return d.write(path, text)
	}}
	if d.fault == "leaves metadata" {
		operations.RemoveAll = func(string) error { return nil }
	}
	return operations
}

func (d *testDriver) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintln(os.Stderr, msg, err)
}

func (d *testDriver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.fault {
	case "prepares the first claim of a call":
		claims = claims[:1]
	case "leaves a lock":
		lock := d.records + ".lock"
		if err := os.Mkdir(lock, 0o755); err != nil {
			return nil, err
		}
		defer os.Remove(lock)       //nolint:errcheck // the next call says so
		_ = sleep(ctx, time.Second) // most of the call, so that a kill is within
	}
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		devices, err := d.prepare(claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (d *testDriver) prepare(claim *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	if d.fault == "leaks files" {
		file, err := os.Open(os.DevNull)
		if err != nil {
			return nil, err
		}
		d.open = append(d.open, file)
	}
	if len(claim.Status.Allocation.Devices.Config) > 0 && d.fault != "ignores parameters" {
		return nil, errors.New("unknown parameters")
	}
	path := filepath.Join(d.records, string(claim.UID))
	if d.fault == "records by name" {
		path = filepath.Join(d.records, claim.Name)
	}
	var kept record
	if text, err := os.ReadFile(path); err == nil && d.fault != "forgets prepared claims" {
		if err := json.Unmarshal(text, &kept); err != nil {
			return nil, err
		}
		if d.fault == "writes a spec once" {
			return kept.Devices, nil
		}
	}
	if kept.Devices == nil {
		if d.fault == "asks for time" && !d.asked[claim.UID] {
			d.asked[claim.UID] = true
			return nil, errors.New("not yet")
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			if result.Driver != testDriverName && d.fault != "prepares devices of others" {
				continue
			}
			if err := d.held(result.Device); err != nil && d.fault != "prepares a held device" {
				return nil, err
			}
			name := d.name(claim.UID) + "-" + result.Device
			if d.fault == "forgets prepared claims" {
				name += "-" + string(uuid.NewUUID())[:5]
			}
			if len(kept.Devices) > 0 && d.fault == "prepares one device" {
				break
			}
			kept.Devices = append(kept.Devices, kubeletplugin.Device{Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device, CDIDeviceIDs: []string{"example.com/device=" + name}})
		}
		text, err := json.Marshal(kept)
		if err == nil && d.fault == "records after the spec" {
			err = d.writeSpec(claim.UID, kept)
			_ = sleep(context.Background(), time.Second) // most of the call, so that a kill is within
		}
		if err == nil {
			err = d.write(path, text)
		}
		if err != nil {
			return nil, err
		}
	}
	switch d.fault {
	case "writes no spec":
		return kept.Devices, nil
	case "lists no devices":
		return nil, nil
	}
	return kept.Devices, d.writeSpec(claim.UID, kept)
}

// write writes a file whole or not at all, whenever the driver is killed.
func (d *testDriver) write(path string, text []byte) error {
	temporary := d.records + ".new"
	return errors.Join(os.WriteFile(temporary, text, 0o600), os.Rename(temporary, path))
}

// held returns an error if another claim has a device.
func (d *testDriver) held(device string) error {
	entries, err := os.ReadDir(d.records)
	for _, entry := range entries {
		text, readErr := os.ReadFile(filepath.Join(d.records, entry.Name()))
		if err = errors.Join(err, readErr); strings.Contains(string(text), `"`+device+`"`) {
			err = errors.Join(err, fmt.Errorf("device %s is held by claim %s", device, entry.Name()))
		}
	}
	return err
}

func (d *testDriver) spec(uid types.UID) string {
	return filepath.Join(os.Getenv("CDI_DIR"), "example.com-device-"+d.name(uid)+".json")
}

// name returns the name of a claim in the folder of CDI specs.
func (d *testDriver) name(uid types.UID) string {
	if d.fault == "leaves specs under a hash" {
		return fmt.Sprintf("%x", sha256.Sum256([]byte(uid)))[:8]
	}
	return string(uid)
}

func (d *testDriver) writeSpec(uid types.UID, kept record) error {
	var devices []string
	for _, device := range kept.Devices {
		_, name, _ := strings.Cut(device.CDIDeviceIDs[0], "=")
		devices = append(devices, fmt.Sprintf(`{"name": %q, "containerEdits": {"env": ["DEVICE=%s"]}}`, name, device.DeviceName))
	}
	text := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "example.com/device", "devices": [%s]}`, strings.Join(devices, ", "))
	return d.write(d.spec(uid), []byte(text))
}

func (d *testDriver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	results := map[types.UID]error{}
	for i, claim := range claims {
		results[claim.UID] = nil
		if i == 0 || d.fault != "unprepares the first claim of a call" {
			results[claim.UID] = d.unprepare(claim.UID)
		}
	}
	return results, nil
}

func (d *testDriver) unprepare(uid types.UID) error {
	if d.fault == "removes any name" {
		return errors.Join(os.RemoveAll(d.spec(uid)), os.RemoveAll(filepath.Join(d.records, string(uid))))
	}
	if strings.ContainsAny(string(uid), "/") || uid == "" {
		return nil // no claim has such a UID
	}
	var errs []error
	if _, err := os.Stat(filepath.Join(d.records, string(uid))); err != nil && d.fault == "records after the spec" {
		return nil
	}
	if !strings.HasPrefix(d.fault, "leaves specs") {
		errs = append(errs, os.Remove(d.spec(uid)))
	}
	if d.fault != "leaves records" {
		errs = append(errs, os.Remove(filepath.Join(d.records, string(uid))))
	}
	if d.fault == "empties the folder" {
		errs = append(errs, os.RemoveAll(os.Getenv("CDI_DIR")))
	}
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		return errors.Is(err, fs.ErrNotExist) && d.fault != "unprepares only what it knows"
	})...)
}

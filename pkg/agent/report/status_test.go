// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// statusClaim returns a claim with one share of a GPU. It also has a device of another
// driver that reports its own status.
func statusClaim() *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "one", UID: "uid-one"},
		Status: resourceapi.ResourceClaimStatus{
			Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
				Results: []resourceapi.DeviceRequestAllocationResult{
					{Request: "gpu", Driver: agenttest.Driver, Pool: "node", Device: "gpu-1b-00", ShareID: agenttest.Share()},
					{Request: "nic", Driver: "nic.example.com", Pool: "node", Device: "nic-0"},
				},
			}},
			Devices: []resourceapi.AllocatedDeviceStatus{{Driver: "nic.example.com", Pool: "node", Device: "nic-0"}},
		},
	}
}

// runWriter runs a writer until stop is called. stop waits for the writer to end.
func runWriter(t *testing.T, client *fake.Clientset) (w *statusWriter, stop func()) {
	t.Helper()
	w = newStatusWriter(client.ResourceV1(), agenttest.Driver, agenttest.NewObserved())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return w, stop
}

func getClaim(t *testing.T, client *fake.Clientset) *resourceapi.ResourceClaim {
	t.Helper()
	claim, err := client.ResourceV1().ResourceClaims("team").Get(t.Context(), "one", metav1.GetOptions{})
	must(t, err)
	return claim
}

func TestStatusNamesThePreparedDeviceAndLeavesOtherDriversAlone(t *testing.T) {
	client := fake.NewClientset(statusClaim())
	w, stop := runWriter(t, client)
	w.Set(readyStatus(nameOf(statusClaim()), []claim.Device{agenttest.Device(), agenttest.Device()}, testTime))
	stop() // writes the queued status

	want := []resourceapi.AllocatedDeviceStatus{
		{Driver: "nic.example.com", Pool: "node", Device: "nic-0"},
		{
			Driver: agenttest.Driver, Pool: "node", Device: "gpu-1b-00", ShareID: ptr.To(string(*agenttest.Share())),
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: metav1.ConditionTrue, Reason: "Prepared", Message: "the device is prepared",
				LastTransitionTime: metav1.NewTime(testTime.Local()),
			}},
			Data: &runtime.RawExtension{Raw: []byte(`{"kind":"DeviceData","apiVersion":"gpu.nvidia.com/v1alpha1",` +
				`"uuid":"GPU-11111111-2222-3333-4444-555555555555","pciBusID":"0000:1b:00.0"}`)},
		},
	}
	got := getClaim(t, client).Status.Devices
	for i := range got {
		if got[i].Data != nil {
			got[i].Data.Raw = canonical(t, got[i].Data.Raw)
		}
	}
	require.Same(t, "status.devices", want, got)
}

func canonical(t *testing.T, raw []byte) []byte {
	t.Helper()
	var data v1alpha1.DeviceData
	must(t, json.Unmarshal(raw, &data))
	out, err := json.Marshal(data)
	must(t, err)
	return out
}

func TestStatusOfAFailedPrepareHasTheError(t *testing.T) {
	client := fake.NewClientset(statusClaim())
	w, stop := runWriter(t, client)
	w.Set(failedStatus(statusClaim(), agenttest.Driver, fmt.Errorf("gpu-1b-00: %w", gpu.ErrLost), testTime))
	stop()

	claim := getClaim(t, client)
	if len(claim.Status.Devices) != 2 || len(claim.Status.Devices[1].Conditions) != 1 {
		t.Fatalf("status.devices = %+v, want the other driver's and ours", claim.Status.Devices)
	}
	c := claim.Status.Devices[1].Conditions[0]
	if c.Status != metav1.ConditionFalse || c.Reason != "GPULost" || c.Message != "gpu-1b-00: GPU lost" {
		t.Errorf("condition = %+v, want Ready=False with the error", c)
	}
}

func TestStatusIsNotWrittenIfItIsUpToDate(t *testing.T) {
	client := fake.NewClientset(statusClaim())
	w, stop := runWriter(t, client)
	want := readyStatus(nameOf(statusClaim()), []claim.Device{agenttest.Device()}, testTime)
	if want.written(statusClaim(), agenttest.Driver) {
		t.Error("an empty status counts as written")
	}
	w.Set(want)
	stop()
	later := readyStatus(nameOf(statusClaim()), []claim.Device{agenttest.Device()}, testTime.Add(time.Hour))
	if !later.written(getClaim(t, client), agenttest.Driver) {
		t.Error("the status that was just written does not count as written")
	}
	failed := failedStatus(statusClaim(), agenttest.Driver, errors.New("lost"), testTime)
	if failed.written(getClaim(t, client), agenttest.Driver) {
		t.Error("Ready=True counts as written although the claim failed since")
	}
}

func TestStatusOfAClaimThatIsGoneIsDropped(t *testing.T) {
	claims := schema.GroupResource{Group: "resource.k8s.io", Resource: "resourceclaims"}
	for name, refusal := range map[string]error{
		"the claim is deleted":       apierrors.NewNotFound(claims, "one"),
		"another has taken its name": apierrors.NewConflict(claims, "one", errors.New("uid mismatch")),
		"it is not allocated any more": apierrors.NewInvalid(schema.GroupKind{}, "one",
			nil),
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			var calls atomic.Int32
			client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				calls.Add(1)
				return true, nil, refusal
			})
			w, stop := runWriter(t, client)
			w.Set(readyStatus(nameOf(statusClaim()), []claim.Device{agenttest.Device()}, testTime))
			stop()
			if got := calls.Load(); got != 1 {
				t.Errorf("%d writes, want one and no retry", got)
			}
			if got := w.observer.(*agenttest.Observed).All()["status dropped"]; got != 1 {
				t.Errorf("gpu_dra_status_writes_total{outcome=dropped} = %v, want 1", got)
			}
		})
	}
}

func TestStatusIsWrittenAgainAfterAFailure(t *testing.T) {
	client := fake.NewClientset(statusClaim())
	var failures atomic.Int32
	written := make(chan struct{})
	client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		if failures.Add(1) <= 2 {
			return true, nil, apierrors.NewServiceUnavailable("API server restarts")
		}
		close(written)
		return false, nil, nil
	})
	w, stop := runWriter(t, client)
	w.Set(readyStatus(nameOf(statusClaim()), []claim.Device{agenttest.Device()}, testTime))
	<-written
	stop()
	if got := len(getClaim(t, client).Status.Devices); got != 2 {
		t.Errorf("%d entries in status.devices, want 2", got)
	}
}

// The status does not wait for its events, and is not written again for them.
func TestEventsOfAStatusAreCreatedAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(statusClaim())
		writes, calls := 0, 0
		client.PrependReactor("patch", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes++
			return false, nil, nil
		})
		w, stop := runWriter(t, client)
		status := readyStatus(nameOf(statusClaim()), []claim.Device{agenttest.Device()}, testTime)
		status.createEvents = func(context.Context) error {
			if calls++; calls <= 2*statusAttempts {
				return errRateLimit
			}
			return nil
		}
		w.Set(status)
		time.Sleep(time.Hour) //nolint:forbidigo // of the bubble
		stop()
		if writes != 1 || calls != 2*statusAttempts+1 || len(w.wanted) > 0 {
			t.Errorf("%d writes, %d attempts for events, still queued: %v", writes, calls, w.wanted)
		}
	})
}

func TestStatusOfAnUnpreparedClaimIsNotWritten(t *testing.T) {
	client := fake.NewClientset(statusClaim())
	w := newStatusWriter(client.ResourceV1(), agenttest.Driver, agenttest.NewObserved())
	w.Set(readyStatus(nameOf(statusClaim()), []claim.Device{agenttest.Device()}, testTime))
	w.Forget("uid-one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Run(ctx)
	if got := len(getClaim(t, client).Status.Devices); got != 1 {
		t.Errorf("%d entries in status.devices, want only the other driver's", got)
	}
}

// The allocation of a claim can end while the kubelet prepares it.
func TestAFailedPrepareOfAClaimWithoutAnAllocationReportsNothing(t *testing.T) {
	object := statusClaim()
	object.Status.Allocation = nil
	r, observed := newTestReporter(fake.NewClientset(), &claims{})
	r.BeginPrepare(object).End(nil, gpu.ErrInvalid)
	if got := observed.All()["queue"]; got != 0 {
		t.Errorf("%v writes of a status wait, want none", got)
	}
}

func plainShare() share.Terms { return share.Terms{Share: &share.Amount{Memory: 1 << 30}} }

func limitedShare() share.Terms {
	return share.Terms{Share: &share.Amount{Memory: 4 << 30}, Limit: &share.Limit{Memory: 2 << 30, Containers: 2}}
}

// Other programs read these objects, so the fields of a version must not change.
func TestDataDescribesADeviceOfAClaim(t *testing.T) {
	const device = `"kind":"DeviceData","apiVersion":"gpu.nvidia.com/v1alpha1","uuid":"GPU-11111111-2222-3333-4444-555555555555","pciBusID":"0000:1b:00.0"`
	for name, tc := range map[string]struct {
		terms share.Terms
		want  string
	}{
		"all of it": {share.Terms{}, `{` + device + `}`},
		"an MPS share": {agenttest.MPSShare(), `{` + device + `,"share":{"strategy":"MPS","memory":"10Gi","compute":50,` +
			`"processes":2,"threadPercentage":25,"memoryLimit":"4608Mi","enforcement":"cooperative","memoryEnforcement":"cooperative","computeEnforcement":"cooperative"}}`},
		"a plain share": {
			plainShare(),
			`{` + device + `,"share":{"strategy":"Plain","memory":"1Gi","enforcement":"none","memoryEnforcement":"none","computeEnforcement":"none"}}`,
		},
		"all of it, time-sliced": {
			share.Terms{TimeSlice: gpu.TimeSliceLong},
			`{` + device + `,"share":{"strategy":"TimeSlicing","timeSlice":"Long","enforcement":"none","memoryEnforcement":"none","computeEnforcement":"none"}}`,
		},
		"a share that the driver limits": {
			limitedShare(),
			`{` + device + `,"share":{"strategy":"Plain","memory":"4Gi","containers":2,"containerMemoryLimit":"2Gi",` +
				`"enforcement":"none","memoryEnforcement":"driver","computeEnforcement":"none"}}`,
		},
		"a share with only a CDI spec": {share.Terms{Share: &share.Amount{}}, `{` + device + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := agenttest.Device()
			d.Terms = tc.terms
			got, err := json.Marshal(dataOf(d))
			must(t, err)
			require.Same(t, "data", tc.want, string(got))
		})
	}
}

func TestDataOfAllGPUsNamesNone(t *testing.T) {
	got, err := json.Marshal(dataOf(claim.Device{Name: kindtest.Name("node-gpus")}))
	if want := `{"kind":"DeviceData","apiVersion":"gpu.nvidia.com/v1alpha1"}`; err != nil || string(got) != want {
		t.Errorf("data %s, %v; want %s", got, err, want)
	}
}

// The kubelet prepares a claim again after a restart. Another release of the agent or
// other flags may have changed the limits.
func TestStatusIsWrittenAgainWhenTheLimitsChange(t *testing.T) {
	client := fake.NewClientset(statusClaim())
	w, stop := runWriter(t, client)
	device := agenttest.Device()
	device.Terms = agenttest.MPSShare()
	w.Set(readyStatus(nameOf(statusClaim()), []claim.Device{device}, testTime))
	stop()
	object := getClaim(t, client)
	// As the API server stores it.
	var sorted map[string]any
	raw := &object.Status.Devices[1].Data.Raw
	must(t, json.Unmarshal(*raw, &sorted))
	var err error
	*raw, err = json.Marshal(sorted)
	must(t, err)
	if !readyStatus(nameOf(object), []claim.Device{device}, testTime).written(object, agenttest.Driver) {
		t.Error("the same limits do not count as written")
	}
	device.Terms.MPS.MemoryLimit--
	if readyStatus(nameOf(object), []claim.Device{device}, testTime).written(object, agenttest.Driver) {
		t.Error("another memory limit counts as written")
	}
	object.Status.Devices[1].Data = nil
	if readyStatus(nameOf(object), []claim.Device{device}, testTime).written(object, agenttest.Driver) {
		t.Error("a status without data counts as written")
	}
}

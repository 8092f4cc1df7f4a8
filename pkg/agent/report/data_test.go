// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/agenttest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
)

func mpsShare() share.Terms {
	return share.Terms{
		Share: &share.Amount{Memory: 10 << 30, Compute: 50},
		MPS:   &share.Client{Daemon: kindtest.Name("gpu-1b-00"), Processes: 2, ThreadPercentage: 25, MemoryLimit: 4608 << 20},
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
		"an MPS share": {mpsShare(), `{` + device + `,"share":{"strategy":"MPS","memory":"10Gi","compute":50,` +
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
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
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
	device.Terms = mpsShare()
	w.Set(readyStatus(nameOf(statusClaim()), []claim.Device{device}, testTime))
	stop()
	object := getClaim(t, client)
	// As the API server stores it.
	var sorted map[string]any
	raw := &object.Status.Devices[1].Data.Raw
	if err := json.Unmarshal(*raw, &sorted); err != nil {
		t.Fatal(err)
	}
	var err error
	if *raw, err = json.Marshal(sorted); err != nil {
		t.Fatal(err)
	}
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

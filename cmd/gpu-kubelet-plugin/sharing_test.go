// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestSharesArePublishedAsTheFlagsSay(t *testing.T) {
	root := programtest.Node(t, t.TempDir(), "dgx-h100")
	o, err := parse([]string{
		"--driver-root=" + root, "--machine-root=" + root, "--offer=share,timeslice", "--mps-supervisor=", "--compute-overcommit=2", "--smallest-share=2Gi", "--timeslice-slots=8",
	}, nil)
	must(t, err)
	var printed bytes.Buffer
	must(t, agent.PrintSlices(t.Context(), &o.Config, &printed, t.Output()))
	var list resourceapi.ResourceSliceList
	must(t, json.Unmarshal(printed.Bytes(), &list))
	got := map[string]string{}
	for _, slice := range list.Items {
		for _, device := range slice.Spec.Devices {
			for name, capacity := range device.Capacity {
				policy := capacity.RequestPolicy
				got[device.Name+" "+string(name)] = fmt.Sprintf("%s of %s from %s on", policy.Default, &capacity.Value, policy.ValidRange.Min)
			}
		}
	}
	want := map[string]string{}
	for _, bus := range []string{"1b", "43", "52", "61", "9d", "c3", "d1", "df"} {
		want["gpu-"+bus+"-00 memory"] = "81008Mi of 81008Mi from 2Gi on"
		want["gpu-"+bus+"-00 compute"] = "0 of 200 from 0 on"
		want["gpu-"+bus+"-00-ts memory"] = "0 of 81008Mi from 0 on"
		want["gpu-"+bus+"-00-ts slots"] = "1 of 8 from 1 on"
	}
	require.Same(t, "capacities", want, got)
}

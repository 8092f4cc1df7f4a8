// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/share"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind/kindtest"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

func TestAShareFollowsTheHoldersOfItsDevice(t *testing.T) {
	const namespace = "0b9d7ad52e534b0e8f7e2c1d5f0a9b11"
	device, other := kindtest.Name("gpu-1b-00"), kindtest.Name("gpu-2b-00")
	id := types.UID("0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11")
	client := func(daemon kind.Name, namespace string) *share.Client {
		return &share.Client{Daemon: daemon, Processes: 1, Namespace: namespace}
	}
	holder := func(mps *share.Client, daemons ...kind.Name) Holder {
		return Holder{Plan: Plan{Devices: []Device{{Name: device, Terms: share.Terms{Share: &share.Amount{}, MPS: mps}}}}, Daemons: daemons}
	}
	for name, tc := range map[string]struct {
		planned string
		others  []Holder
		want    string
	}{
		"no other share":                    {planned: namespace, want: namespace},
		"a share with a namespace":          {planned: namespace, others: []Holder{holder(client(device, "x"))}, want: namespace},
		"a share without one":               {planned: namespace, others: []Holder{holder(client(device, ""))}, want: ""},
		"a driver that has lost namespaces": {others: []Holder{holder(client(device, "x"))}, want: namespace},
		"a plain share":                     {planned: namespace, others: []Holder{holder(nil)}, want: namespace},
		"a share of another GPU":            {planned: namespace, others: []Holder{holder(client(other, ""))}, want: namespace},
		"a lost record without a namespace": {planned: namespace, others: []Holder{holder(nil, device)}, want: ""},
		"a lost record and a share with a namespace": {planned: namespace, others: []Holder{
			holder(client(device, "x")), holder(nil, device),
		}, want: namespace},
	} {
		t.Run(name, func(t *testing.T) {
			p := Plan{Devices: []Device{{Name: device, ShareID: &id, Terms: share.Terms{Share: &share.Amount{Memory: 1 << 30}, MPS: client(device, tc.planned)}}}}
			got, err := p.following(tc.others)
			require.NoError(t, err)
			if got := got.Devices[0].MPS.Namespace; got != tc.want {
				t.Errorf("namespace %q, want %q", got, tc.want)
			}
			if p.Devices[0].MPS.Namespace != tc.planned {
				t.Error("the plan from before has changed")
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/claim/internal/journal"
)

func TestAShareFollowsTheHoldersOfItsDevice(t *testing.T) {
	const device, namespace = "gpu-1b-00", "0b9d7ad52e534b0e8f7e2c1d5f0a9b11"
	id := types.UID("0b9d7ad5-2e53-4b0e-8f7e-2c1d5f0a9b11")
	client := func(daemon, namespace string) *journal.Client {
		return &journal.Client{Daemon: daemon, Processes: 1, Namespace: namespace}
	}
	holder := func(mps *journal.Client, steps ...journal.Entry) journal.Holder {
		return journal.Holder{Record: &journal.Record{Devices: []journal.Device{{Name: device, Share: &journal.Share{}, MPS: mps}}, Journal: steps}}
	}
	for name, tc := range map[string]struct {
		planned string
		adopted bool
		others  []journal.Holder
		want    string
	}{
		"no other share":                    {planned: namespace, want: namespace},
		"a share with a namespace":          {planned: namespace, others: []journal.Holder{holder(client(device, "x"))}, want: namespace},
		"a share without one":               {planned: namespace, others: []journal.Holder{holder(client(device, ""))}, want: ""},
		"a driver that has lost namespaces": {others: []journal.Holder{holder(client(device, "x"))}, want: namespace},
		"a plain share":                     {planned: namespace, others: []journal.Holder{holder(nil)}, want: namespace},
		"a share of another GPU":            {planned: namespace, others: []journal.Holder{holder(client("gpu-2b-00", ""))}, want: namespace},
		"a lost record without a namespace": {planned: namespace, others: []journal.Holder{holder(nil, journal.Entry{Step: journal.StepStartMPS, Device: device, State: journal.Lost})}, want: ""},
		"a lost record and a share with a namespace": {planned: namespace, others: []journal.Holder{
			holder(client(device, "x")), holder(nil, journal.Entry{Step: journal.StepStartMPS, Device: device, State: journal.Lost}),
		}, want: namespace},
		"lost records of both claims": {planned: namespace, adopted: true, others: []journal.Holder{
			holder(nil, journal.Entry{Step: journal.StepStartMPS, Device: device, State: journal.Lost}),
		}, want: namespace},
		"a daemon that has not been requested": {planned: namespace, others: []journal.Holder{holder(nil, journal.Entry{Step: journal.StepStartMPS, Device: device})}, want: namespace},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Plan{
				Record:   &journal.Record{Adopted: tc.adopted, Devices: []journal.Device{{Name: device, ShareID: &id, Share: &journal.Share{Memory: 1 << 30}, MPS: client(device, tc.planned)}}},
				requests: []deviceRequest{{config: &v1alpha1.ShareConfig{}}},
			}
			if err := p.FollowHolders(tc.others); err != nil {
				t.Fatal(err)
			}
			if got := p.Record.Devices[0].MPS.Namespace; got != tc.want {
				t.Errorf("namespace %q, want %q", got, tc.want)
			}
		})
	}
}

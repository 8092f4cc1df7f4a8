// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// standardConfig is the configuration of a release.
var standardConfig = catalog.NodeConfig{
	Offer:  "share",
	Shares: catalog.ShareOffer{MPS: true, ComputeOvercommit: 1, Smallest: 1 << 30, Units: kind.Numbers{kind.TimeSlice: 4, kind.Seat: 4}, ServerMemory: 64 << 20},
	MIG:    catalog.MIGOffer{GPUs: 2, AllowReset: true},
}

func TestAConfigurationHasItsSettingsAndThoseOfTheRelease(t *testing.T) {
	got, err := catalog.ParseNodeConfigs([]byte(`
training:
  offer: []
inference:
  offer: [share, mig]
  shares: {smallest: 2Gi, computeOvercommit: 1.5}
  mig: {profiles: [1g.10gb, 3g.40gb], gpus: all}
development:
  offer: [share, timeslice]
  timeslice: {slots: 8}
  mig: {profiles: all, gpus: 1, layout: halves, keep: true}
plain:
`), standardConfig)
	must(t, err)
	want := map[string]catalog.NodeConfig{"plain": standardConfig}
	training, inference, development := standardConfig, standardConfig, standardConfig
	training.Offer = ""
	inference.Offer = "share,mig"
	inference.Shares.Smallest, inference.Shares.ComputeOvercommit = 2<<30, 1.5
	inference.MIG.GPUs = 0
	inference.MIG.Profiles.Listed = []gpu.Profile{{Slices: 1, MemoryGB: 10}, {Slices: 3, MemoryGB: 40}}
	development.Offer, development.Shares.Units = "share,timeslice", kind.Numbers{kind.TimeSlice: 8, kind.Seat: 4}
	development.MIG.Profiles.All, development.MIG.GPUs, development.MIG.Keep, development.Layout = true, 1, true, "halves"
	want["training"], want["inference"], want["development"] = training, inference, development
	for name, want := range want {
		got, err := got.Config(name)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, (-want +got):\n%s", name, err, diff)
		}
	}
	none, err := catalog.ParseNodeConfigs(nil, standardConfig)
	if err != nil || len(none.Invalid()) > 0 {
		t.Errorf("an empty file has %v, %v", none, err)
	}
	_, err = none.Config("training")
	require.Error(t, "a configuration of an empty file", err, gpu.ErrNotFound, "known are: none")
}

func TestConfigurationsThatAreRefused(t *testing.T) {
	for content, want := range map[string]string{
		"a: {offer: [share], ofer: []}":                   `configuration "a": invalid: unknown field "ofer"`,
		"a: {mig: {profile: all}}":                        `configuration "a": invalid: unknown field "mig.profile"`,
		"a: {seat: {seats: 4}}":                           `configuration "a": invalid: unknown field "seat"`,
		"a: {Offer: [share]}":                             `unknown field "Offer"`,
		"a: {offer: [share]}\na: {}":                      `key "a" already set`,
		"a: {offer: [], offer: [mig]}":                    `key "offer" already set`,
		"a: {offer: [teleport]}":                          `configuration "a": offer "teleport": invalid: "teleport" is unknown; known are: share`,
		"a: {offer: share}":                               `configuration "a": invalid: json: cannot unmarshal string into Go struct field namedConfig.offer`,
		"a: {mig: {profiles: [9z]}}":                      `configuration "a": mig.profiles "9z"`,
		"a: {mig: {profiles: []}}":                        `configuration "a": mig.profiles ""`,
		"a: {mig: {profiles: 3}}":                         `configuration "a": invalid: mig.profiles: want common, all, or a list`,
		"a: {mig: {gpus: 0}}":                             `configuration "a": mig.gpus=0: invalid: want all, or a number from 1 on`,
		"a: {mig: {gpus: some}}":                          `configuration "a": mig.gpus=some: invalid`,
		"a: {timeslice: {slots: 0}}":                      `configuration "a": timeslice.slots=0: invalid: want a number from 1 on`,
		"a: {shares: {smallest: 0}}":                      `configuration "a": shares.smallest=0: invalid: want whole Mi`,
		"a: {shares: {smallest: much}}":                   `configuration "a": invalid: quantities must match`,
		"a: {shares: {computeOvercommit: 0}}":             `configuration "a": shares.computeOvercommit=0: invalid: want a number from 1 to 100`,
		"a b: {}":                                         `configuration "a b": invalid: want a name that is the value of a label`,
		`"": {}`:                                          `configuration "": invalid: want a name`,
		"- a":                                             "want a map of names to settings",
		"a: 3":                                            `configuration "a": invalid: json: cannot unmarshal number`,
		"a: {timeslice: {slots: 0}}\nb: {mig: {gpus: 0}}": `configuration "b": mig.gpus=0`,
	} {
		configs, err := catalog.ParseNodeConfigs([]byte(content), standardConfig)
		err = errors.Join(append(configs.Invalid(), err)...)
		require.Error(t, content, err, gpu.ErrInvalid, want)
	}
}

func TestAConfigurationIsValidByItself(t *testing.T) {
	configs, err := catalog.ParseNodeConfigs([]byte("good: {offer: [mig]}\nbad: {ofer: [mig]}\nworse: 3"), standardConfig)
	must(t, err)
	if good, err := configs.Config("good"); err != nil || good.Offer.String() != "mig" {
		t.Errorf("good: %+v, %v", good, err)
	}
	for _, name := range []string{"bad", "worse"} {
		_, err := configs.Config(name)
		require.Error(t, name, err, gpu.ErrInvalid, `configuration "`+name+`"`)
	}
	if got := len(configs.Invalid()); got != 2 {
		t.Errorf("%d errors, want that of each invalid one", got)
	}
}

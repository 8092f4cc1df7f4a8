// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/cluster"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
	"github.com/gpu-dra/gpu-dra-driver/test/require"
)

// nodeConfig is the configuration of a node and the state that has it.
type nodeConfig struct {
	*cluster.NodeConfig
	state *state.State
}

func newNodeConfig(o cluster.NodeConfigOptions) nodeConfig {
	s := state.New(state.Fixed{})
	o.Table = &s.Configuration
	return nodeConfig{cluster.NewNodeConfig(o), s}
}

// Now returns the configuration that the node follows, and the problems of the inputs.
func (c nodeConfig) Now() (catalog.NodeConfig, error) {
	now := c.state.Configuration.Get()
	return now.Followed.Config, now.Problem
}

func (c nodeConfig) Keeps(name kind.Name) bool {
	return c.state.Configuration.Get().Followed.Keeps(name)
}

// configured is a node with the standard offer share and the configurations training
// and slots.
func configured() nodeConfig {
	return newNodeConfig(cluster.NodeConfigOptions{Standard: catalog.NodeConfig{Offer: "share"}, Named: true})
}

// pools is the file of configurations.
const pools = "training: {offer: []}\nslots: {offer: [timeslice], timeslice: {slots: 8}}\n"

// parsed reads a file of configurations.
func parsed(t *testing.T, content string) catalog.NodeConfigs {
	t.Helper()
	configs, err := catalog.ParseNodeConfigs([]byte(content), catalog.NodeConfig{Offer: "share"})
	must(t, err)
	return configs
}

// follow makes a node without GPUs follow its inputs.
func follow(t *testing.T, c nodeConfig) {
	t.Helper()
	must(t, c.follow(gpu.Node{}))
}

// follow follows the inputs after a scan of the node.
func (c nodeConfig) follow(node gpu.Node) error {
	c.state.Hardware.Set(state.HardwareOf(node))
	return c.Follow(c.state.Snapshot())
}

func labels(pairs ...string) cluster.Node {
	n := cluster.Node{Labels: map[string]string{}}
	for _, pair := range pairs {
		key, value, _ := strings.Cut(pair, "=")
		n.Labels["gpu.nvidia.com/"+key] = value
	}
	return n
}

func TestLabelsSelectTheConfiguration(t *testing.T) {
	for name, tc := range map[string]struct {
		labels []string
		offer  string
		slots  int
	}{
		"no label":                     {offer: "share"},
		"an offer":                     {labels: []string{"offer=mig"}, offer: "mig"},
		"a configuration":              {labels: []string{"config=slots"}, offer: "timeslice", slots: 8},
		"a configuration with nothing": {labels: []string{"config=training"}},
		"both: the offer overrides":    {labels: []string{"config=slots", "offer=share.timeslice"}, offer: "share,timeslice", slots: 8},
		"both: the offer of nothing":   {labels: []string{"config=slots", "offer="}, slots: 8},
	} {
		t.Run(name, func(t *testing.T) {
			c := configured()
			c.SetNode(labels(tc.labels...), nil)
			c.SetNamed(parsed(t, pools), nil)
			follow(t, c)
			if now, err := c.Now(); err != nil || now.Offer.String() != tc.offer || now.Shares.Units[kind.TimeSlice] != tc.slots {
				t.Errorf("offers %q with %d slots, %v; want %q with %d", now.Offer, now.Shares.Units[kind.TimeSlice], err, tc.offer, tc.slots)
			}
		})
	}
}

// An agent that published before it has read both would withdraw devices for a moment.
func TestTheConfigurationIsKnownOnceLabelsAndFileWereRead(t *testing.T) {
	known := func(c nodeConfig) bool { return c.state.Configuration.Get().Known }
	for name, set := range map[string][]func(nodeConfig){
		"labels first": {
			func(c nodeConfig) { c.SetNode(labels("config=slots"), nil) },
			func(c nodeConfig) { c.SetNamed(parsed(t, pools), nil) },
		},
		"file first": {
			func(c nodeConfig) { c.SetNamed(catalog.NodeConfigs{}, errors.New("no such file")) },
			func(c nodeConfig) { c.SetNode(cluster.Node{}, errors.New("forbidden")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := configured()
			set[0](c)
			follow(t, c)
			if known(c) {
				t.Error("known after the first")
			}
			set[1](c)
			if known(c) {
				t.Error("known before the node follows it")
			}
			follow(t, c)
			if !known(c) {
				t.Error("not known after both")
			}
		})
	}
	without := newNodeConfig(cluster.NodeConfigOptions{})
	without.SetNode(labels(), nil)
	follow(t, without)
	if !known(without) {
		t.Error("without a file, the labels are enough")
	}
}

// The node keeps its configuration, reports the mistake, and follows its inputs again once
// they are right.
func TestAMistakeChangesNothing(t *testing.T) {
	forbidden := errors.New("forbidden")
	for name, tc := range map[string]struct {
		wrong func(nodeConfig)
		want  string
	}{
		"a label that names no configuration": {
			func(c nodeConfig) { c.SetNode(labels("config=learning"), nil) },
			"the node's label gpu.nvidia.com/config=learning is not followed: not found: there is no such configuration; known are: slots, training",
		},
		"an empty label": {
			func(c nodeConfig) { c.SetNode(labels("config="), nil) },
			"the node's label gpu.nvidia.com/config= is not followed",
		},
		"an offer that is unknown": {
			func(c nodeConfig) { c.SetNode(labels("config=training", "offer=teleport"), nil) },
			"the node's label gpu.nvidia.com/offer=teleport is not followed",
		},
		"labels out of reach": {
			func(c nodeConfig) { c.SetNode(cluster.Node{}, forbidden) },
			"the node's labels are out of reach: forbidden",
		},
		"a file that is invalid": {
			func(c nodeConfig) { c.SetNamed(catalog.NodeConfigs{}, forbidden) },
			"forbidden",
		},
		"a configuration that becomes invalid": {
			func(c nodeConfig) { c.SetNamed(parsed(t, "slots: {offer: [teleport]}"), nil) },
			`the node's label gpu.nvidia.com/config=slots is not followed: configuration "slots": offer "teleport": invalid`,
		},
		"a configuration that is removed": {
			func(c nodeConfig) { c.SetNamed(catalog.NodeConfigs{}, nil) },
			"known are: none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := configured()
			c.SetNode(labels("config=slots"), nil)
			c.SetNamed(parsed(t, pools), nil)
			follow(t, c)
			changed, cancel := c.state.Subscribe()
			defer cancel()
			tc.wrong(c)
			follow(t, c)
			now, err := c.Now()
			if now.Offer.String() != "timeslice" || now.Shares.Units[kind.TimeSlice] != 8 {
				t.Errorf("offers %q with %d slots", now.Offer, now.Shares.Units[kind.TimeSlice])
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasSuffix(err.Error(), `; the node still offers "timeslice"`) {
				t.Errorf("%v, want %q", err, tc.want)
			}
			select {
			case <-changed:
			default:
				t.Error("the error is not reported")
			}
			c.SetNode(labels("config=training"), nil)
			c.SetNamed(parsed(t, pools), nil)
			follow(t, c)
			if now, err := c.Now(); err != nil || now.Offer.String() != "" {
				t.Errorf("offers %q, %v after the repair", now.Offer, err)
			}
		})
	}
}

// An invalid file keeps no node from following its label. The label may select
// another of the configurations that were valid.
func TestALabelIsFollowedWhileTheFileIsInvalid(t *testing.T) {
	c := configured()
	c.SetNode(labels("config=slots"), nil)
	c.SetNamed(parsed(t, pools), nil)
	follow(t, c)
	c.SetNamed(catalog.NodeConfigs{}, errors.New("bad"))
	c.SetNode(labels("config=training"), nil)
	follow(t, c)
	if now, err := c.Now(); now.Offer.String() != "" || err == nil || !strings.Contains(err.Error(), "bad") {
		t.Errorf("offers %q, %v", now.Offer, err)
	}
}

var must = require.NoError

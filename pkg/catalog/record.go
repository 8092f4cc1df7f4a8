// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// recordVersion is the version of [NodeRecord]'s text.
const recordVersion = 1

// NodeRecord is the configuration of a node and its layout. Its text is independent of the
// files from which both were read.
type NodeRecord struct {
	Config NodeConfig
	// Layout is nil if the configuration has none.
	Layout *Layout
}

// Keeps reports whether a MIG device stays when no claim uses it. All stay while the node
// follows nothing.
func (r NodeRecord) Keeps(name kind.Name) bool {
	if r.Config.MIG.Static || r.Config.HeldOnly {
		return !r.Config.MIG.Static
	}
	return r.Config.MIG.Keep && r.Config.Offer.Partitions() && r.Layout.Keeps(name)
}

// recordText is the text of a record. Layout has no GPU whose partitions are not known.
type recordText struct {
	Version  int             `json:"version"`
	Settings json.RawMessage `json:"settings"`
	Layout   *layoutText     `json:"layout,omitempty"`
}

// layoutText is the text of a layout. GPUs maps names of GPUs to names of MIG devices: an
// empty list means MIG on demand, null a whole GPU.
type layoutText struct {
	Name string                    `json:"name"`
	GPUs map[kind.Name][]kind.Name `json:"gpus"`
}

// Encode returns the text of the record. Equal records have equal texts.
func (r NodeRecord) Encode() ([]byte, error) {
	settings, err := json.Marshal(r.Config.named())
	if err != nil {
		return nil, fmt.Errorf("encode the configuration of the node: %w", err)
	}
	text := recordText{Version: recordVersion, Settings: settings}
	if r.Layout != nil {
		text.Layout = r.Layout.text()
	}
	return json.Marshal(text)
}

// DecodeNodeRecord reads the text of a record. Settings that no configuration has are as in
// the standard one. Errors wrap [gpu.ErrInvalid]; text of another version is invalid too.
func DecodeNodeRecord(data []byte, standard NodeConfig) (NodeRecord, error) {
	var text recordText
	unexpected, err := kjson.UnmarshalStrict(data, &text)
	if err = errors.Join(append(unexpected, err)...); err == nil && text.Version != recordVersion {
		err = fmt.Errorf("version %d, this release knows %d", text.Version, recordVersion)
	}
	if err != nil {
		return NodeRecord{}, fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
	}
	r := NodeRecord{}
	if r.Config, err = parseNodeConfig(text.Settings, standard); err != nil {
		return NodeRecord{}, err
	}
	r.Config.MIG.Config = nil
	if text.Layout != nil && !standard.MIG.Static {
		r.Layout, err = text.Layout.parse()
	}
	return r, err
}

// named returns the configuration as a file has it, with all settings.
func (c NodeConfig) named() namedConfig {
	offer := []string{}
	if words := c.Offer.String(); words != "" {
		offer = strings.Split(words, ",")
	}
	profiles, gpus := profileList(c.MIG.Profiles.String()), intstr.FromString("all")
	if c.MIG.GPUs > 0 {
		gpus = intstr.FromInt(c.MIG.GPUs)
	}
	n := namedConfig{Offer: &offer}
	n.MIG.Profiles, n.MIG.GPUs, n.MIG.Layout, n.MIG.Keep = &profiles, &gpus, &c.Layout, &c.MIG.Keep
	if c.Shares.Smallest > 0 {
		n.Shares.Smallest = resource.NewQuantity(c.Shares.Smallest, resource.BinarySI)
	}
	if c.Shares.ComputeOvercommit > 0 {
		n.Shares.ComputeOvercommit = &c.Shares.ComputeOvercommit
	}
	if slots := c.Shares.Units[kind.TimeSlice]; slots > 0 {
		n.TimeSlice.Slots = &slots
	}
	return n
}

// text returns the text of the layout.
func (l *Layout) text() *layoutText {
	t := &layoutText{Name: l.name, GPUs: map[kind.Name][]kind.Name{}}
	for address := range l.whole {
		t.GPUs[kind.Whole(address)] = nil
	}
	for address, parts := range l.gpus {
		if parts == nil {
			continue
		}
		names := []kind.Name{}
		for _, p := range parts {
			names = append(names, kind.Partition(address, p.profile.Profile, p.placement.Start))
		}
		t.GPUs[kind.Whole(address)] = names
	}
	return t
}

// parse returns the layout. Its parts have a profile and a start only; partsOf reads the
// rest from the GPU.
func (t *layoutText) parse() (*Layout, error) {
	l := newLayout(t.Name)
	for g, names := range t.GPUs {
		if g != kind.Whole(g.Address) {
			return nil, fmt.Errorf("layout %q: %w: %q is not the name of a GPU", t.Name, gpu.ErrInvalid, g)
		}
		if names == nil {
			l.whole[g.Address] = true
			continue
		}
		parts := fixedParts{}
		for _, name := range names {
			if !name.IsPartition() || name.Address != g.Address {
				return nil, fmt.Errorf("layout %q: %w: %q is not the name of a MIG device of %s", t.Name, gpu.ErrInvalid, name, g)
			}
			parts = append(parts, part{profile: gpu.ProfileInfo{Profile: name.Profile}, placement: gpu.Placement{Start: name.Start}})
		}
		l.gpus[g.Address] = parts
	}
	return l, nil
}

// String returns the notation that [ParseMIGProfiles] reads.
func (m MIGProfiles) String() string {
	switch {
	case m.All:
		return "all"
	case len(m.Listed) == 0:
		return "common"
	}
	names := make([]string, len(m.Listed))
	for i, p := range m.Listed {
		names[i] = p.String()
	}
	return strings.Join(names, ",")
}

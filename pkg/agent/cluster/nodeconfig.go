// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/source"
	"github.com/gpu-dra/gpu-dra-driver/pkg/agent/state"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog/migconfig"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// recordKey is the key of the node's record.
const recordKey = "followed"

// Records store the configuration that the node follows. They outlive the process and the boot.
type Records interface {
	// Read returns the record of key. The error wraps [fs.ErrNotExist] if there is none.
	Read(key string) ([]byte, error)
	// Write replaces the record of key.
	Write(key string, payload []byte) error
}

// NodeConfigOptions are the inputs of a [NodeConfig] that do not change.
type NodeConfigOptions struct {
	// Table gets the configuration that the node follows.
	Table *state.Table[state.Configuration]
	// Standard is the configuration of a node whose labels select no other one.
	Standard catalog.NodeConfig
	// Named is set if there are named configurations: [NodeConfig.SetNamed] is called.
	Named bool
	// Layouts is set if there are layouts: [NodeConfig.SetLayouts] is called.
	Layouts bool
	// LayoutLabel is set if [v1alpha1.LabelMIGConfig] names the layout.
	LayoutLabel bool
	// Records have the record of an earlier process; nil if the node has none.
	Records Records
}

// NodeConfig is the writer of [state.State.Configuration]. Its methods may be called from any
// goroutine.
//
// The inputs select a configuration: the one that [v1alpha1.LabelConfig] names, or else the
// standard one, with the offer of [v1alpha1.LabelOffer] and the layout of
// [v1alpha1.LabelMIGConfig] if the node has those labels. The node follows it once it is
// valid on the node and recorded. Until then the node follows the earlier source:
//
//	selected, valid, recorded  →  the selected configuration
//	else, earlier in this process  →  the last one
//	else, by an earlier process  →  the one in the record
//	else  →  nothing: the node offers only devices that claims hold
//
// A configuration or layout that is not valid has no effect on nodes that do not select it.
type NodeConfig struct {
	NodeConfigOptions
	mu      sync.Mutex
	labels  source.Last[map[string]string]
	named   source.Last[catalog.NodeConfigs]
	layouts source.Last[migconfig.File]
	sets    uint64 // how often an input was set

	selected  *catalog.NodeConfig // last configuration that the inputs selected; nil before
	selectErr error               // why the inputs select none now
	followed  catalog.NodeRecord
	followErr error  // why the node does not follow selected
	recorded  []byte // text of the record

	// scanned is set once the inputs and a scan of the hardware were known together. hardware is
	// the revision of the hardware that was followed last.
	scanned  bool
	hardware uint64
}

// NewNodeConfig returns the configuration of a node whose inputs are not known yet. It
// follows the record; a damaged record, or one of another release, counts as none.
func NewNodeConfig(o NodeConfigOptions) *NodeConfig {
	c := &NodeConfig{NodeConfigOptions: o}
	defer c.write()
	c.named.Good, c.layouts.Good = !o.Named, !o.Layouts
	c.followed.Config = o.Standard.HoldBack()
	if o.Records == nil {
		return c
	}
	text, err := o.Records.Read(recordKey)
	if errors.Is(err, fs.ErrNotExist) {
		return c
	}
	var followed catalog.NodeRecord
	if err == nil {
		followed, err = catalog.DecodeNodeRecord(text, o.Standard)
	}
	if err != nil {
		c.followErr = fmt.Errorf("the record of the node's configuration cannot be used: %w", err)
		return c
	}
	c.followed, c.recorded = followed, text
	return c
}

// SetNode takes the labels of the node, or the error of reading it.
func (c *NodeConfig) SetNode(node Node, err error) {
	if err != nil {
		err = fmt.Errorf("the node's labels are out of reach: %w", err)
	}
	c.set(func() { c.labels.Set(node.Labels, err) })
}

// SetNamed takes the named configurations, or the error of reading their file.
func (c *NodeConfig) SetNamed(configs catalog.NodeConfigs, err error) {
	c.set(func() { c.named.Set(configs, err) })
}

// SetLayouts takes the layouts of MIG devices, or the error of reading their file.
func (c *NodeConfig) SetLayouts(layouts migconfig.File, err error) {
	c.set(func() { c.layouts.Set(layouts, err) })
}

// set changes an input and derives the selected configuration.
func (c *NodeConfig) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.sets++
	if !c.isKnown() {
		return
	}
	config, err := c.choose()
	if c.selectErr = err; err == nil {
		c.selected = &config
	}
	c.write()
}

// isKnown reports whether every input was set. Callers hold mu.
func (c *NodeConfig) isKnown() bool { return c.labels.Known() && c.named.Known() && c.layouts.Known() }

// write writes the table. Callers hold mu.
func (c *NodeConfig) write() {
	c.Table.Set(state.Configuration{Selected: c.selected, Followed: c.followed, Known: c.scanned, Hardware: c.hardware, Problem: c.problem()})
}

// choose returns the configuration that the inputs select.
func (c *NodeConfig) choose() (catalog.NodeConfig, error) {
	config, labels := c.Standard, c.labels.Value
	if !c.labels.Good {
		return config, c.labels.Err
	}
	var err error
	if name, labelled := labels[v1alpha1.LabelConfig]; labelled {
		if config, err = c.named.Value.Config(name); err != nil {
			return config, fmt.Errorf("the node's label %s=%s is not followed: %w", v1alpha1.LabelConfig, name, err)
		}
	}
	if offer, labelled := labels[v1alpha1.LabelOffer]; labelled {
		if config.Offer, err = catalog.ParseOfferLabel(offer); err != nil {
			return config, fmt.Errorf("the node's label %s=%s is not followed: %w; write words with a dot between them, such as share.mig", v1alpha1.LabelOffer, offer, err)
		}
	}
	if name, labelled := labels[v1alpha1.LabelMIGConfig]; labelled && c.LayoutLabel && name != "" {
		config.Layout = name
	}
	if config.Layout == "" || !config.Offer.Partitions() {
		return config, nil
	}
	if config.MIG.Static {
		return config, fmt.Errorf("MIG configuration %q: %w: an administrator makes the MIG devices of this node (--mig=static)", config.Layout, gpu.ErrInvalid)
	}
	config.MIG.Config, err = c.layouts.Value.Config(config.Layout)
	return config, err
}

// Selected returns the configuration that the inputs select, and every problem of the
// inputs.
func (c *NodeConfig) Selected() (catalog.NodeConfig, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.selected == nil {
		return catalog.NodeConfig{}, c.problem()
	}
	return *c.selected, errors.Join(c.inputErr(), c.unusedErr())
}

// Claims reads the held devices from the disk, and writes them to the state.
type Claims interface {
	Read(ctx context.Context) state.Claimed
}

// Run follows the inputs and the hardware in s until ctx ends. The claims are read before
// that, so that no device is withdrawn that a claim holds by then.
func (c *NodeConfig) Run(ctx context.Context, s *state.State, claims Claims) {
	changed, cancel := s.Subscribe()
	defer cancel()
	pause := source.Backoff()
	var followed inputs
	var retry <-chan time.Time
	for ctx.Err() == nil {
		if now := c.inputs(s); now != followed {
			followed, retry = now, nil
			claims.Read(ctx)
			if err := c.Follow(s.Snapshot()); err != nil {
				retry = time.After(pause.Step())
			} else {
				pause = source.Backoff()
			}
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-retry:
			followed = inputs{}
		}
	}
}

// inputs count the changes of what the configuration depends on.
type inputs struct{ set, hardware uint64 }

func (c *NodeConfig) inputs(s *state.State) inputs {
	c.mu.Lock()
	defer c.mu.Unlock()
	return inputs{c.sets, s.Revisions().Hardware}
}

// Follow makes the node follow the selected configuration if it is valid for the node's
// GPUs. It writes the table. Before the inputs and the first scan are known, it does nothing.
// It returns an error if the record cannot be written; the caller tries again later.
func (c *NodeConfig) Follow(now state.Snapshot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isKnown() || !now.Hardware.Scanned {
		return nil
	}
	c.scanned, c.hardware = true, now.Revisions.Hardware
	err := c.follow(now.Node())
	c.write()
	return err
}

// follow makes the node follow the selected configuration. Callers hold mu.
func (c *NodeConfig) follow(node gpu.Node) error {
	if c.selected == nil || c.selected.MIG.Config != nil && len(node.GPUs) == 0 {
		return nil // which layout the GPUs would have is not known
	}
	next := catalog.NodeRecord{Config: *c.selected}
	if next.Layout, c.followErr = next.Config.MIG.Layout(node); c.followErr != nil {
		return nil //nolint:nilerr // inputErr returns it
	}
	if err := c.record(next); err != nil {
		c.followErr = err
		return err
	}
	c.followed, c.followErr = next, nil
	return nil
}

// record writes the record, unless it is on disk already. The agents of a rolling update
// may write at the same time: both follow the same inputs.
func (c *NodeConfig) record(next catalog.NodeRecord) error {
	if c.Records == nil {
		return nil
	}
	text, err := next.Encode()
	if err != nil || bytes.Equal(text, c.recorded) {
		return err
	}
	if err := c.Records.Write(recordKey, text); err != nil {
		return fmt.Errorf("record the configuration of the node: %w", err)
	}
	c.recorded = text
	return nil
}

// problem returns why an input is not followed, and the node's offer meanwhile. It
// returns nil if all inputs are valid. Callers hold mu.
func (c *NodeConfig) problem() error {
	used, unused := c.inputErr(), c.unusedErr()
	switch config := c.followed.Config; {
	case used == nil && unused == nil:
		return nil
	case used == nil:
		return fmt.Errorf("%w; this node does not use it", unused)
	case config.HeldOnly:
		return fmt.Errorf("%w; meanwhile the node offers only devices that claims hold", errors.Join(used, unused))
	case config.Layout != "":
		return fmt.Errorf("%w; the node still offers %q with the layout %q", errors.Join(used, unused), config.Offer, config.Layout)
	default:
		return fmt.Errorf("%w; the node still offers %q", errors.Join(used, unused), config.Offer)
	}
}

// inputErr returns the problems that concern this node.
func (c *NodeConfig) inputErr() error {
	labels := c.labels.Err
	if errors.Is(c.selectErr, labels) {
		labels = nil
	}
	return errors.Join(labels, c.named.Err, c.layouts.Err, c.selectErr, c.followErr)
}

// unusedErr returns the errors of the configurations and layouts that this node does not
// use.
func (c *NodeConfig) unusedErr() error {
	var errs []error
	for _, err := range append(c.named.Value.Invalid(), c.layouts.Value.Invalid()...) {
		if !errors.Is(c.selectErr, err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

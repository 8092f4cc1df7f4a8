// SPDX-License-Identifier: Apache-2.0

package main

// configMutants returns the mutants of what a node follows: its inputs, its record, and what
// it offers while neither is there.
func configMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `c.followed, c.recorded = followed, text`,
			new:    `c.recorded, _ = text, followed`,
			notice: "a mistake in a file and a restart withdraw the devices of the node",
		},
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `c.followed.Config = o.Standard.HoldBack()`,
			new:    `c.followed.Config = o.Standard`,
			notice: "a node whose label cannot be followed offers the shares of the standard",
		},
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `if c.labels.err != nil && labels == nil {`,
			new:    `if false {`,
			notice: "a node whose labels cannot be read is the standard",
		},
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `if c.selected == nil || c.selected.MIG.Config != nil && len(node.GPUs) == 0 {`,
			new:    `if c.selected == nil {`,
			notice: "a boot without the driver removes the layout from the record",
		},
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `if err := c.record(next); err != nil {`,
			new:    `if err := c.record(next); false {`,
			notice: "a node publishes what the next agent cannot know",
		},
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `if err != nil || bytes.Equal(text, c.recorded) {`,
			new:    `if err != nil || bytes.Equal(text, nil) {`,
			notice: "every scan waits for the disk",
		},
		{
			file:   "pkg/cluster/nodeconfig.go",
			old:    `if config.Layout == "" || !config.Offer.MIG {`,
			new:    `if config.Layout == "" {`,
			notice: "a mistake in a layout keeps nodes without MIG from following their label",
		},
		{
			file:   "pkg/catalog/catalog.go",
			old:    `return c.HeldOnly || c.Offer.MIG &&`,
			new:    `return c.Offer.MIG &&`,
			notice: "a node that should offer nothing new offers whole GPUs",
			run:    "^TestANodeThatHoldsBack",
		},
		{
			file:   "pkg/catalog/layout.go",
			old:    `return !in && !l.whole[address]`,
			new:    `return !in && in`,
			notice: "a GPU that is not in the record of the layout is offered as a whole",
			run:    "^TestARecord",
		},
		{
			file:   "pkg/catalog/layout.go",
			old:    `return parts == nil && !l.whole[name.Address] || slices`,
			new:    `return slices`,
			notice: "MIG devices of a GPU that does not answer are destroyed when it answers again",
			run:    "^TestARecord",
		},
		{
			file:   "pkg/catalog/record.go",
			old:    "		if parts == nil {\n			continue\n		}\n",
			new:    "",
			notice: "a GPU whose profiles could not be read offers MIG on demand after a restart",
			run:    "^TestARecord",
		},
		{
			file:   "pkg/catalog/record.go",
			old:    `err == nil && text.Version != recordVersion {`,
			new:    `false {`,
			notice: "a record of another release is read as one of this release",
			run:    "^TestRecords",
		},
		{
			file:   "pkg/catalog/nodeconfigs.go",
			old:    `configs.invalid[name] = fmt.Errorf("configuration %q: %w", name, err)`,
			new:    `return NodeConfigs{}, fmt.Errorf("configuration %q: %w", name, err)`,
			notice: "a mistake in a configuration keeps all nodes from following theirs",
			run:    "^TestAConfiguration",
		},
		{
			file:   "pkg/migconfig/parse.go",
			old:    "			f.invalid[name] = err\n			delete(f.configs, name)\n",
			new:    "			return File{}, err\n",
			notice: "a mistake in a layout keeps all nodes from following theirs",
			run:    "^TestAConfiguration",
		},
		{
			file:   "pkg/home/home.go",
			old:    `{configDir, &h.NodeConfig, store.Disk{}},`,
			new:    `{configDir, &h.NodeConfig, store.Unsynced{}},`,
			notice: "a power failure takes the record of what the node follows",
			run:    "^TestRecordsThatOutlive",
		},
		{
			file:   "pkg/home/home.go",
			old:    `errs = append(errs, deleteAll(h.NodeConfig))`,
			new:    ``,
			notice: "a driver that is uninstalled leaves its record on the node",
			run:    "^TestTheRecord",
		},
		{
			file:   "pkg/agent/agent.go",
			old:    `idle = idle && !isInstalled(ctx, a.client, a.DaemonSet)`,
			new:    ``,
			notice: "an idle node forgets what it follows when its agent is restarted",
			run:    "^TestTheRecordOfAnIdleNode",
		},
		{
			file:   "pkg/agent/installed.go",
			old:    `case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):`,
			new:    `case apierrors.IsNotFound(err):`,
			notice: "a driver that is uninstalled leaves its folder on the nodes",
			run:    "^TestWhetherAnAgent",
		},
		{
			file:   "pkg/agent/installed.go",
			old:    `return set.DeletionTimestamp == nil`,
			new:    `return set != nil`,
			notice: "a driver that is uninstalled in the foreground leaves its folder on the nodes",
			run:    "^TestWhetherAnAgent",
		},
	}
}

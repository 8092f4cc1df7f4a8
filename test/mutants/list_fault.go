package main

// faultMutants are in what is known against GPUs.
func faultMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/controller/controller.go",
			old:    `c.inventory.faults = c.records.load(ctx, c.clock.Now())`,
			new:    `c.inventory.faults = map[string]fault{}`,
			notice: "an agent that restarts gives out a GPU that has failed",
			run:    "FaultOutlives",
		},
		{
			file: "pkg/controller/controller.go",
			old: `	if news.marked {
		c.saveFaults(ctx)`,
			new:    `	if news.marked {`,
			notice: "an agent that is killed under a GPU that hangs forgets that it has failed",
			run:    "Hangs",
		},
		{
			file:   "pkg/controller/controller.go",
			old:    `_ = c.publishDue(ctx, c.heldNow(ctx))`,
			new:    `_ = c`,
			notice: "the taint of a GPU that hangs waits until it answers",
			run:    "Hangs",
		},
		{
			file:   "pkg/controller/controller.go",
			old:    `c.again = c.again || news.again`,
			new:    `_ = news.again`,
			notice: "a recovery action that follows its XID without an event is found a quarter of an hour later",
			run:    "FollowsAnXID",
		},
		{
			file:   "pkg/controller/controller.go",
			old:    `unsettled: c.inventory.unsettled(),`,
			new:    ``,
			notice: "a GPU that joins its fabric late keeps its taint for ten minutes",
			run:    "JoinsItsFabric",
		},
		{
			file:   "pkg/controller/faultrecord.go",
			old:    `return uuid + "-" + r.boot`,
			new:    `return uuid`,
			notice: "a GPU that was reset by a reboot stays unhealthy",
			run:    "FaultOutlives",
		},
		{
			file:   "pkg/controller/faultrecord.go",
			old:    `c.inventory.unsaved[uuid] = true`,
			new:    `_ = uuid`,
			notice: "a disk that is full for a minute makes the next agent forget a fault",
			run:    "RecordedLater",
		},
		{
			file:   "pkg/controller/inventory.go",
			old:    `!faulty || !errors.Is(s.err, gpu.ErrLost)`,
			new:    `!faulty`,
			notice: "a GPU that was slow once counts as reset",
			run:    "ScanThatFails",
		},
		{
			file:   "pkg/controller/inventory.go",
			old:    `!errors.Is(i.looked, gpu.ErrNotReady) && i.failures < 2`,
			new:    `false`,
			notice: "one scan that fails takes all GPUs of the node away",
			run:    "ScanThatFails",
		},
		{
			file:   "pkg/controller/inventory.go",
			old:    `if s.loadErr == nil {`,
			new:    `if true {`,
			notice: "a folder of sysfs that cannot be read for a moment ends every fault",
			run:    "LoadOfTheDriver",
		},
		{
			file:   "pkg/controller/inventory.go",
			old:    `if switched && len(g.MIG.Partitions) == 0 {`,
			new:    `if (switched || len(parts) > 0) && len(g.MIG.Partitions) == 0 {`,
			notice: "a GPU in an administrator's MIG mode is given out whole after a restart",
			run:    "MIGMode",
		},
		{
			file:   "pkg/controller/repair.go",
			old:    `c.recovery() || c.Last.After(r.until)`,
			new:    `c.recovery()`,
			notice: "an old annotation ends the faults of next month",
			run:    "Word",
		},
		{
			file:   "pkg/controller/repair.go",
			old:    `c.recovery() || c.Last.After(r.until)`,
			new:    `c.Last.After(r.until)`,
			notice: "an annotation gives out a GPU whose driver asks for a reset, for a minute",
			run:    "AsksFor",
		},
		{
			file:   "pkg/controller/repair.go",
			old:    `if r.until.After(now) {`,
			new:    `if false {`,
			notice: "a typo in the year declares all faults to come repaired",
			run:    "CannotBeFollowed",
		},
		{
			file:   "pkg/controller/fault.go",
			old:    `c.Driver != "" && e.driver != "" && c.Driver != e.driver`,
			new:    `c.Driver != e.driver`,
			notice: "a driver whose load cannot be told ends every fault",
			run:    "WhatEndsACause",
		},
		{
			file:   "pkg/controller/fault.go",
			old:    `c.Branch > 0 && e.branch >= c.Branch && `,
			new:    ``,
			notice: "a driver that does not judge an XID takes it back",
			run:    "WhatEndsACause",
		},
		{
			file:   "pkg/controller/fault.go",
			old:    ` && e.at.Sub(c.Last) >= silence`,
			new:    ``,
			notice: "the taint of a fatal XID goes before the driver has settled what it asks for",
			run:    "WhatEndsACause",
		},
		{
			file:   "pkg/controller/pace.go",
			old:    `return passingTime`,
			new:    `return idleTime`,
			notice: "a GPU that was reset waits ten minutes for its next claim",
			run:    "OnceAMinute",
		},
	}
}

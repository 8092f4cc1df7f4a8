package main

// claimMutants are of the life of a prepared claim.
func claimMutants() []mutant {
	const (
		crashes  = "^TestDying|^TestEveryCall|^TestAFullDisk"
		refusals = "^TestPrepareIsTheLastLineOfDefence|^TestSharesThatCannotBePrepared|^TestMIGDevicesThatCannotBePrepared|^TestTheBoundariesOfSharing"
		shares   = "^TestShares|^TestCeilings|^TestASupervisor|^TestAClaimIsHeld|^TestRecovery|^TestADaemon|^TestALostShare|^TestTheBoundaries|^TestAWholeMIG|^TestAShare"
		mig      = "^TestMIG|^TestOneMIGMode|^TestAnAdministrators|^TestAMIGMode|^TestStatic|^TestRecoverMakes|^TestAnotherInThePlace"
		records  = "^TestRecord|^TestARecord|^TestADamaged|^TestRecover"
	)
	return []mutant{
		{
			file:   "pkg/gpu/kind/exclude.go",
			tests:  "pkg/claim",
			old:    `return !a.Divisible() || !b.Divisible()`,
			new:    `return !a.Divisible() && !b.Divisible()`,
			notice: "a share is handed out of a GPU that another claim has as a whole",
			run:    refusals + "|" + shares,
		},
		{
			file:   "pkg/gpu/kind/exclude.go",
			tests:  "pkg/claim",
			old:    `return knownA && knownB && !placeA.Overlaps(placeB)`,
			new:    `return !a.IsPartition() || !b.IsPartition() || knownA && knownB && !placeA.Overlaps(placeB)`,
			notice: "a MIG device is cut out of a GPU that another claim has as a whole",
			run:    refusals + "|" + mig,
		},
		{
			file:   "pkg/gpu/kind/exclude.go",
			tests:  "pkg/claim",
			old:    `return knownA && knownB && !placeA.Overlaps(placeB)`,
			new:    `return a.IsPartition() && b.IsPartition() && !placeA.Overlaps(placeB)`,
			notice: "a MIG device is cut beside one whose place the driver no longer tells",
			run:    refusals + "|" + mig + "|^TestAMIGDevice",
		},
		{
			file:   "pkg/claim/conflict.go",
			old:    `case before+taken > uint64(all.Value()) && len(holding) > 0:`,
			new:    `case false:`,
			notice: "shares get more memory than the GPU has",
			run:    refusals + "|" + shares,
		},
		{
			file:   "pkg/claim/use.go",
			old:    `if declared <= most {`,
			new:    `if declared <= admitted {`,
			notice: "a small share takes all MPS clients of a GPU",
			run:    "^TestTheBoundaries|^TestSharesThat",
		},
		{
			file:   "pkg/claim/conflict.go",
			old:    `case clients > 0 && beforeClients+clients > admitted:`,
			new:    `case clients > 0 && clients > admitted:`,
			notice: "a container is started whose processes MPS does not admit",
			run:    refusals + "|" + shares,
		},
		{
			file:   "pkg/claim/limits.go",
			old:    `if least := s.context + catalog.MemoryStep; each < least {`,
			new:    `if least := s.context; each < least {`,
			notice: "a share that only holds its CUDA context is prepared, and limited to nothing",
			run:    "^TestLimits|^TestAShareThat|^TestTheSum",
		},
		{
			file:   "pkg/claim/limits.go",
			old:    `c.ThreadPercentage = int(max(1, percent/processes))`,
			new:    `c.ThreadPercentage = int(percent / processes)`,
			notice: "a small share is not limited in compute at all",
			run:    "^TestLimits|^TestAShareThat|^TestTheSum",
		},
		{
			file:   "pkg/claim/limits.go",
			old:    `c.MemoryLimit = (each - s.context) / catalog.MemoryStep * catalog.MemoryStep`,
			new:    `c.MemoryLimit = each / catalog.MemoryStep * catalog.MemoryStep`,
			notice: "shares together take more memory than the GPU has",
			run:    "^TestLimits|^TestAShareThat|^TestTheSum",
		},
		{
			file:   "pkg/claim/journal.go",
			old:    "		e.State = started\n		if err := m.save(j.record); err != nil {\n			return err\n		}\n",
			new:    "		e.State = started\n",
			notice: "an agent that is killed in a step forgets that it has begun it",
			run:    crashes,
		},
		{
			file:   "pkg/claim/journal.go",
			old:    `for _, e := range slices.Backward(j.Journal) {`,
			new:    `for _, e := range j.Journal {`,
			notice: "a MIG mode is switched off before the devices are gone that need it",
			run:    crashes + "|" + mig,
		},
		{
			file:   "pkg/claim/journal.go",
			old:    `context.WithTimeout(context.WithoutCancel(ctx), undoTime(ctx))`,
			new:    `context.WithTimeout(ctx, undoTime(ctx))`,
			notice: "a prepare that ran out of time leaves half of its work",
			run:    "^TestUndo|^TestAnUndo|^TestWhat|^TestACall",
		},
		{
			file:   "pkg/claim/journal.go",
			old:    "	if err := m.CDI.Remove(ctx, claim); err != nil {\n		return err\n	}\n	return m.Records.Delete(string(claim))",
			new:    "	if err := m.Records.Delete(string(claim)); err != nil {\n		return err\n	}\n	return m.CDI.Remove(ctx, claim)",
			notice: "after a reboot and a crash a forgotten claim holds its GPU without a record",
			run:    records + "|^TestAClaimOfAnotherBoot",
		},
		{
			file:   "pkg/claim/plan.go",
			old:    `return slices.Concat(modes, partitions, turns, daemons, []entry{{Step: stepWriteCDI}})`,
			new:    `return slices.Concat(modes, partitions, turns, []entry{{Step: stepWriteCDI}}, daemons)`,
			notice: "a container starts before its MPS daemon runs",
			run:    "^TestWhatContainersGet$",
		},
		{
			file:   "pkg/claim/plan.go",
			old:    `if result.Pool != m.PoolName {`,
			new:    `if false {`,
			notice: "a device of another node's pool is prepared here",
			run:    refusals,
		},
		{
			file:   "pkg/claim/plan.go",
			old:    `case w.name.Kind == kind.Monitor && !admin:`,
			new:    `case false:`,
			notice: "any user gets all GPUs of the node through the monitoring device",
			run:    "^TestMonitoring|^TestAdminAccess",
		},
		{
			file:   "pkg/claim/plan.go",
			old:    `if pod := use.ExternalHolder(w.gpu, w.name); pod != "" {`,
			new:    `if pod := use.ExternalHolder(w.gpu, w.name); false {`,
			notice: "a GPU is handed out that a device plugin has given to a pod",
			run:    "^TestAGPUThatADevicePlugin",
		},
		{
			file:   "pkg/claim/record.go",
			old:    `r.Version < 1 || r.Claim.UID != claim ||`,
			new:    `r.Version < 1 ||`,
			notice: "the record of one claim is believed to be another's",
			run:    records,
		},
		{
			file:   "pkg/claim/record.go",
			old:    `if r.Version > recordVersion {`,
			new:    `if r.Version > recordVersion+1 {`,
			notice: "after a downgrade the record of a newer release is misread and its devices are freed",
			run:    records,
		},
		{
			file:   "pkg/claim/recover.go",
			old:    `case errors.Is(err, gpu.ErrNotFound), errors.Is(err, gpu.ErrCorrupt):`,
			new:    `case errors.Is(err, gpu.ErrNotFound):`,
			notice: "a CDI spec that cannot be read stays for ever and fails every recovery",
			run:    records,
		},
		{
			file:   "pkg/claim/use.go",
			old:    `if n := len(w.companions(all)); n > 1 {`,
			new:    `if n := len(w.companions(all)); n > 2 {`,
			notice: "a container is to be the client of two MPS daemons and can use one GPU only",
			run:    refusals + "|" + shares,
		},
		{
			file:   "pkg/claim/use.go",
			old:    `case mode == gpu.ComputeModeProhibited:`,
			new:    `case false:`,
			notice: "a GPU that the administrator has locked is handed out",
			run:    refusals,
		},
		{
			file:   "pkg/claim/startmps.go",
			old:    `return !h.began(stepStartMPS, daemon) })`,
			new:    `return h.began(stepStartMPS, daemon) })`,
			notice: "the end of one share stops the MPS daemon under the others",
			run:    shares,
		},
		{
			file:   "pkg/claim/startmps.go",
			old:    `raise(daemon, status.Daemon.ThreadPercentage, status.Daemon.MemoryLimits)`,
			new:    `_ = status`,
			notice: "the processes of a claim whose record was lost are throttled while they run",
			run:    shares + "|" + records,
		},
		{
			file:   "pkg/claim/daemons.go",
			old:    `unused, err := around.nobodyElse(ctx, stepStartMPS, daemon); err != nil || !unused {`,
			new:    `unused, err := around.nobodyElse(ctx, stepStartMPS, daemon); err != nil && !unused {`,
			notice: "recovery stops MPS daemons under running containers",
			run:    shares,
		},
		{
			file:   "pkg/claim/interval.go",
			old:    `	if !changed {`,
			new:    `	if !changed || changed {`,
			notice: "the time slice that the administrator had set is not restored after the second claim",
			run:    "Interval|TheFirstSets",
		},
		{
			file:   "pkg/claim/writecdi.go",
			old:    `if counted && c.MPS.MemoryLimit > 0 {`,
			new:    `if (counted || !counted) && c.MPS.MemoryLimit > 0 {`,
			notice: "a container with one of several GPUs is held to the limit of another",
			run:    "^TestContainers|^TestOneConfiguration|^TestWhatContainers|^TestLimits",
		},
	}
}

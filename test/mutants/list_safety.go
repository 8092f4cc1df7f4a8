// SPDX-License-Identifier: Apache-2.0

package main

import "time"

// safetyMutants returns the mutants of the checks that prevent the release of devices
// in use, and that detect a stuck agent.
func safetyMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/plugin/gone.go",
			old:    `|| apierrors.IsUnexpectedServerError(err) {`,
			new:    `{`,
			notice: "a load balancer's 404 releases the claims of running pods",
		},
		{
			file:   "pkg/plugin/gone.go",
			old:    `!strings.HasPrefix(status.Message, genericNotFound)`,
			new:    `strings.TrimSpace(status.Message) != ""`,
			notice: "an API server that does not serve claims releases the claims of running pods",
		},
		{
			file:   "pkg/plugin/gone.go",
			old:    `about.Name == name`,
			new:    `about.Name != ""`,
			notice: "a 404 about another object releases a claim",
		},
		{
			file:   "pkg/plugin/rounds.go",
			old:    `	confirmations = 2`,
			new:    `	confirmations = 1`,
			notice: "one wrong response of the API server releases a claim",
		},
		{
			file:   "pkg/plugin/rounds.go",
			old:    `if len(ripe) > 1 || len(ripe) == held {`,
			new:    `if len(ripe) == held {`,
			notice: "several claims are released after as few rounds as one claim",
		},
		{
			file:   "pkg/plugin/rounds.go",
			old:    `if len(ripe) > 1 || len(ripe) == held {`,
			new:    `if len(ripe) > 1 {`,
			notice: "the last claim of a node is released after as few rounds as one of many",
		},
		{
			file:   "pkg/plugin/rounds.go",
			old:    `seen[uid] = r.seen[uid] + 1`,
			new:    `r.seen[uid]++; seen = r.seen`,
			notice: "rounds that are not consecutive release a claim",
			run:    "^TestClaimsAreReleased|^TestAnError",
		},
		{
			file: "pkg/plugin/reconcile.go",
			old: `		found = nil
`,
			new:    "",
			notice: "an API server that has lost its data releases the claims of running pods",
		},
		{
			file:   "pkg/plugin/reconcile.go",
			old:    `if p.reads.Wait(ctx) != nil {`,
			new:    `if false {`,
			notice: "a thousand nodes that boot together flood the API server",
		},
		{
			file:   "pkg/plugin/reconcile.go",
			old:    `	if released > 0 {`,
			new:    `	if released > 100 {`,
			notice: "the metadata files of a released claim stay",
			run:    "^TestAReleasedClaim",
		},
		{
			file:   "pkg/plugin/metadata_files.go",
			old:    `return object.Metadata.UID, nil`,
			new:    `return "", nil`,
			notice: "metadata files of prepared claims are removed while their containers run",
		},
		{
			file:   "pkg/telemetry/activity.go",
			old:    `took > a.limit`,
			new:    `took < 0`,
			notice: "a stuck agent is never restarted",
		},
		{
			file:   "pkg/telemetry/server.go",
			old:    `cmp.Compare(perClient[least.client], perClient[c.client]),`,
			new:    ``,
			notice: "one greedy client closes the connections of all others",
			run:    "GreedyClient",
		},
		{
			file:   "pkg/telemetry/server.go",
			old:    `return c.used + math.MaxUint64/2`,
			new:    `return c.used`,
			notice: "a scrape is interrupted while other connections of its client are idle",
			run:    "InUse",
		},
		{
			file:   "pkg/telemetry/server.go",
			old:    `delete(l.conns, displaced)`,
			new:    `l.most++`,
			notice: "a client opens connections without a limit",
			run:    "HaveEnded",
		},
		{
			file:   "pkg/telemetry/server.go",
			old:    `server.ConnState = limited.follow`,
			new:    `server.ConnState = nil`,
			notice: "a connection that is idle stays while one in use is closed",
			run:    "InUse",
		},
		{
			file:   "pkg/telemetry/handler.go",
			old:    `	case <-ctx.Done():`,
			new:    `	case <-make(chan int):`,
			notice: "a probe hangs together with its check",
			hangs:  20 * time.Second,
			run:    "^TestAProbeAnswers",
		},
		{
			file:   "pkg/cdi/dir.go",
			old:    `s.Nlink == 0`,
			new:    `s.Nlink > 1000`,
			notice: "the container runtime never reads a CDI directory again that was removed on the host",
		},
		{
			file:   "pkg/cdi/dir.go",
			old:    `changed = d.seen != nil && !os.SameFile(d.seen, info)`,
			new:    `changed = false`,
			notice: "the specs of prepared claims are not written again",
		},
		{
			file:   "pkg/home/home.go",
			old:    `	if err := h.held.Check(); err != nil {`,
			new:    `	if err := h.held.Check(); false {`,
			notice: "an agent whose records were replaced continues without its held claims",
			run:    "^TestAHomeThatWasReplaced",
		},
	}
}

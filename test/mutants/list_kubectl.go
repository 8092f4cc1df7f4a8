// SPDX-License-Identifier: Apache-2.0

package main

// kubectlMutants returns the mutants of what protects the users of kubectlgpu from tenants.
func kubectlMutants() []mutant {
	return []mutant{
		{
			file:   "pkg/kubectlgpu/driver.go",
			old:    `return pod.Namespace == set.Namespace && metav1.IsControlledBy(pod, set) && pod.Spec.ServiceAccountName == set.Spec.Template.Spec.ServiceAccountName`,
			new:    `return pod.Namespace == set.Namespace && pod.Spec.ServiceAccountName == set.Spec.Template.Spec.ServiceAccountName`,
			notice: "a pod that no DaemonSet controls gets a token of the viewers",
			run:    "^TestPodsOfTenants",
		},
		{
			file:   "pkg/kubectlgpu/driver.go",
			old:    `metav1.IsControlledBy(pod, set) && pod.Spec.ServiceAccountName == set.Spec.Template.Spec.ServiceAccountName`,
			new:    `metav1.IsControlledBy(pod, set)`,
			notice: "a pod with another account than the agents' gets a token of the viewers",
			run:    "^TestPodsOfTenants",
		},
		{
			file:   "pkg/kubectlgpu/bounded.go",
			old:    `if n > b.left {`,
			new:    `if false {`,
			notice: "an agent that answers without an end fills the memory of kubectl gpu",
			run:    "^TestAnAnswerWithoutAnEnd",
		},
		{
			file:   "pkg/kubectlgpu/command.go",
			old:    `streams.Out, streams.ErrOut = plain.Writer(streams.Out), plain.Writer(streams.ErrOut)`,
			new:    ``,
			notice: "an attribute of a device moves the cursor of an administrator's terminal",
			run:    "^TestControlCharacters",
		},
		{
			file:   "pkg/kubectlgpu/sysdump.go",
			old:    `name, content = plain.Line(name), plain.Text(content)`,
			new:    ``,
			notice: "a file of a sysdump has escape sequences",
			run:    "^TestControlCharacters",
		},
		{
			file:   "pkg/kubectlgpu/internal/plain/plain.go",
			old:    `case unicode.IsPrint(r) || strings.ContainsRune(allowed, r):`,
			new:    `case !unicode.IsControl(r) || strings.ContainsRune(allowed, r):`,
			notice: "bidirectional characters show text in another order",
		},
		{
			file:   "pkg/gpupages/internal/web/web.go",
			old:    `return subtle.ConstantTimeCompare([]byte(strings.ToLower(u.Hostname())), []byte(s.host)) == 1`,
			new:    `return u.Hostname() == "127.0.0.1" || u.Hostname() == s.host`,
			notice: "the pages are served under 127.0.0.1, whose cookies all ports get",
		},
		{
			file:   "pkg/fleet/search.go",
			old:    `func (s *Search) ended() bool { return s.left <= 0 || !time.Now().Before(s.deadline) }`,
			new:    `func (s *Search) ended() bool { return false }`,
			notice: "an explanation has no limit in all",
			run:    "^TestUnexamined|^TestTheWork",
		},
		{
			file:   "pkg/fleet/search.go",
			old:    `return m.selected || m.failed`,
			new:    `return m.selected`,
			notice: "a class whose selector fails on other drivers' devices seems to be fine",
			run:    "^TestASelectorOfTheClass",
		},
		{
			file:   "pkg/fleet/search.go",
			old:    `checks.NotExamined++`,
			new:    ``,
			notice: "devices that were not examined are not named",
			run:    "^TestUnexamined",
		},
		{
			file:   "pkg/fleet/pools.go",
			old:    `} else if reason := p.contradiction(); reason != "" {`,
			new:    `} else if reason := p.contradiction(); false {`,
			notice: "a pool that the scheduler refuses seems to have too few devices",
			run:    "^TestAPoolThat",
		},
		{
			file:   "api/agent/v1/access.go",
			old:    `return "agent." + driver + "/" + podUID`,
			new:    `return "agent." + driver`,
			notice: "a token for one agent opens all of them",
			tests:  "pkg/agent",
			run:    "^TestOnlyTokens",
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// story is a task of a user or an administrator, with checks of its result.
type story struct {
	name string
	run  func(context.Context, *node) error
	// gpu is set if it shows nothing on a simulated GPU.
	gpu bool
	// settings is set if it changes settings of the GPU.
	settings bool
}

// stories in the order in which they run. If the first one fails, no other one runs. The long ones
// come last.
var stories = []story{
	{name: "smoke", run: smoke},
	{name: "whole", run: whole},
	{name: "limits", run: limits},
	{name: "brim", run: brim},
	{name: "foreign", run: foreign, gpu: true},
	{name: "shm", run: sharedMemory},
	{name: "restarts", run: restarts},
	{name: "fault", run: fault},
	{name: "killed", run: killed},
	{name: "users", run: users},
	{name: "starts", run: starts},
	{name: "nvidia", run: other},
	{name: "intervals", run: intervals, settings: true},
	{name: "exclusive", run: exclusive, settings: true},
	{name: "mig", run: mig, settings: true},
	{name: "layouts", run: layouts, settings: true},
	{name: "throughput", run: throughput, gpu: true},
	{name: "decode", run: decode},
	{name: "pytorch", run: pytorch},
	{name: "crowd", run: crowd, gpu: true},
}

func smoke(ctx context.Context, n *node) error {
	err := n.computes(ctx, pod{name: "smoke"}, "4Gi", "a share computes")
	n.screens(ctx)
	return err
}

// computes checks that a pod with a share of a GPU computes.
func (n *node) computes(ctx context.Context, p pod, memory, text string) error {
	p.steps = []string{"info", "run", "1", smallKernel}
	if err := n.claim(ctx, p, "share.nvidia.com", memory, "25"); err != nil {
		return err
	}
	lines, err := n.finish(ctx, time.Minute, p)
	if err == nil && find(lines[p.name], "run") == nil {
		err = fmt.Errorf("the pod printed %v", lines[p.name])
	}
	n.report.check(err == nil, "%s", text)
	return err
}

func whole(ctx context.Context, n *node) error {
	p := pod{name: "whole", steps: []string{"info", "run", "3", smallKernel, "run", "3", fullKernel, "alloc", "512"}}
	if err := n.claim(ctx, p, "gpu.nvidia.com", "", ""); err != nil {
		return err
	}
	if err := n.await(ctx, time.Minute, []string{p.name}, "Running", "Succeeded"); err != nil {
		return err
	}
	n.screens(ctx)
	n.show(ctx, "kubectl", "gpu", "explain", p.name, "--namespace", namespace)
	lines, err := n.finish(ctx, time.Minute, p)
	info, alloc := find(lines[p.name], "info"), find(lines[p.name], "alloc")
	n.report.check(alloc.number("allocatedMiB") > 0.98*info.number("totalMiB")-1024, "a whole GPU: %.0f of %.0f MiB allocated, %.0f free at the start", alloc.number("allocatedMiB"), info.number("totalMiB"), info.number("freeMiB"))
	return err
}

// limits measures the memory and multiprocessors of processes in shares of several sizes.
func limits(ctx context.Context, n *node) error {
	var pods []pod
	asked := map[string]float64{}
	for _, s := range []struct {
		gib     int
		compute string
	}{{4, "5"}, {8, "10"}, {16, "25"}, {24, "50"}} {
		claim, err := n.template(ctx, "share.nvidia.com", fmt.Sprintf("%dGi", s.gib), s.compute, "")
		if err != nil {
			return err
		}
		p := pod{name: "limit-" + s.compute, claim: claim, steps: []string{"info", "run", "1", smallKernel, "alloc", "32", "hold", "2"}}
		asked[p.name] = float64(s.gib) * 1024
		pods = append(pods, p)
	}
	if err := n.start(ctx, pods...); err != nil {
		return err
	}
	if err := n.await(ctx, time.Minute, []string{pods[0].name}, "Running", "Succeeded"); err != nil {
		return err
	}
	n.show(ctx, "kubectl", "gpu", "explain", pods[0].name, "--namespace", namespace)
	lines, err := n.finish(ctx, 2*time.Minute, pods...)
	for _, p := range pods {
		info, alloc := find(lines[p.name], "info"), find(lines[p.name], "alloc")
		if info == nil || alloc == nil {
			n.report.check(false, "%s printed %v", p.name, lines[p.name])
			continue
		}
		// A context takes about 28 MiB and 3.7 for each multiprocessor.
		context := asked[p.name] - info.number("freeMiB")
		n.report.check(alloc.number("allocatedMiB") <= asked[p.name] && alloc.number("allocatedMiB") > asked[p.name]-28-4*info.number("multiprocessors")-64,
			"a share of %.0f MiB: %.0f multiprocessors, %.0f MiB less free than asked for, %.0f allocated, then %v", asked[p.name], info.number("multiprocessors"), context, alloc.number("allocatedMiB"), alloc["name"])
	}
	return err
}

// total returns the memory of the GPU in MiB.
func (n *node) total(ctx context.Context) int {
	out, err := n.program(ctx, "", "nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
	if total, convert := strconv.Atoi(strings.TrimSpace(out)); err == nil && convert == nil {
		return total
	}
	return 143771 // an H200, as the simulated machine has
}

// brim fills all shares of a GPU at once, to check their sum.
func brim(ctx context.Context, n *node) error {
	size := (n.total(ctx) - 1500) / 4
	pods, err := n.many(ctx, "brim", 4, func(dir string) []string {
		return []string{"info", "barrier", dir, "4", "alloc", "32", "hold", "5"}
	}, "share.nvidia.com", fmt.Sprintf("%dMi", size), "25", "")
	if err != nil {
		return err
	}
	lines, err := n.finish(ctx, 2*time.Minute, pods...)
	var sum float64
	all := true
	for _, p := range pods {
		alloc := find(lines[p.name], "alloc")
		sum += alloc.number("allocatedMiB")
		all = all && alloc.number("allocatedMiB") > float64(size)-28-4*33-64 && alloc["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
	}
	n.report.check(all, "4 shares of %d MiB filled at once: %.0f MiB allocated together of %d", size, sum, n.total(ctx))
	return err
}

// foreign lets a pod meet a process that no claim explains.
func foreign(ctx context.Context, n *node) error {
	begun, err := n.host(ctx, "info", "hold", "18")
	if err != nil {
		return err
	}
	p := pod{name: "meets", steps: []string{"info"}}
	if err := n.claim(ctx, p, "gpu.nvidia.com", "", ""); err != nil {
		return err
	}
	created := time.Now()
	wait, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var said string
	err = n.until(wait, func() error {
		out, err := n.kubectl(ctx, "", "--namespace", namespace, "get", "resourceclaims", "--output", `jsonpath={range .items[*].status.devices[*].conditions[*]}{.type}={.status}: {.message}{"\n"}{end}`)
		if err == nil && !strings.Contains(out, "Ready=False") {
			err = fmt.Errorf("the claim says: %s", out)
		}
		said = out
		return err
	})
	n.report.check(err == nil, "the claim of a pod that waits for a foreign process says so after %.1f s: %s", time.Since(created).Seconds(), strings.TrimSpace(said))
	n.show(ctx, "kubectl", "gpu", "explain", p.name, "--namespace", namespace)
	n.screens(ctx)
	if err := begun(); err != nil {
		return err
	}
	lines, err := n.finish(ctx, 100*time.Second, p)
	n.report.check(find(lines[p.name], "info") != nil, "the pod runs %.0f s after it was created, the process ended at about 18", time.Since(created).Seconds())
	return err
}

// host starts the workload outside of all pods, and returns a function that waits for its end.
func (n *node) host(ctx context.Context, steps ...string) (func() error, error) {
	done := make(chan error, 1)
	go func() {
		out, err := n.program(ctx, "", "env", append([]string{"LD_LIBRARY_PATH=/usr/local/nvidia/lib64", n.workload()}, steps...)...)
		n.report.file("foreign.txt", out)
		done <- err
	}()
	// Its context takes a moment.
	deadline, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := n.until(deadline, func() error {
		out, err := n.program(ctx, "", "nvidia-smi", "--query-compute-apps=pid,name", "--format=csv,noheader")
		if err == nil && !strings.Contains(out, "gpuload") {
			err = fmt.Errorf("nvidia-smi shows no process: %s", out)
		}
		return err
	})
	return func() error { return <-done }, err
}

// sharedMemory runs a pod with a share and a /dev/shm of its own.
func sharedMemory(ctx context.Context, n *node) error {
	return n.computes(ctx, pod{name: "shm", shm: "512Mi"}, "4Gi", "a pod with a /dev/shm of its own and a share computes")
}

// restarts replaces agent and supervisor while a share computes.
func restarts(ctx context.Context, n *node) error {
	pods, err := n.many(ctx, "restarts", 2, func(string) []string { return []string{"info", "run", "15", smallKernel} }, "share.nvidia.com", "8Gi", "25", "")
	if err != nil {
		return err
	}
	if err := n.await(ctx, time.Minute, []string{pods[0].name, pods[1].name}, "Running"); err != nil {
		return err
	}
	if _, err := n.kubectl(ctx, "", "--namespace", driverNamespace, "delete", "pods", "--all", "--wait=false"); err != nil {
		return err
	}
	lines, err := n.finish(ctx, time.Minute, pods...)
	for _, p := range pods {
		run := find(lines[p.name], "run")
		n.report.check(run != nil, "agent and supervisor were deleted while %s computed: %.0f launches/s, p99 %.3f ms, longest %.1f ms", p.name, run.number("perSecond"), run.number("p99ms"), run.number("maxms"))
	}
	return err
}

// fault lets one share write to no address while another one computes.
func fault(ctx context.Context, n *node) error {
	dir, err := n.barrier("fault")
	if err != nil {
		return err
	}
	claim, err := n.template(ctx, "share.nvidia.com", "8Gi", "25", "")
	if err != nil {
		return err
	}
	good := pod{name: "good", claim: claim, steps: []string{"info", "barrier", dir, "2", "run", "6", smallKernel}}
	bad := pod{name: "bad", claim: claim, steps: []string{"info", "barrier", dir, "2", "run", "1", smallKernel, "fault"}}
	if err := n.start(ctx, good, bad); err != nil {
		return err
	}
	if _, err := n.finish(ctx, time.Minute, good, bad); err != nil {
		return err
	}
	n.show(ctx, "kubectl", "gpu", "explain", good.name, "--namespace", namespace)
	n.screens(ctx)
	n.show(ctx, "sh", "-c", "dmesg | grep NVRM | tail -n 3")
	if !n.simulated { // the kernel's log of a simulated GPU is a file of the simulator
		n.warned(ctx, bad.name, v1alpha1.ReasonProgramFault)
		n.warned(ctx, good.name, v1alpha1.ReasonProgramFault)
	}
	return n.serves(ctx, "after a fault of a share")
}

// serves checks that a new share computes.
func (n *node) serves(ctx context.Context, when string) error {
	if err := n.clean(ctx); err != nil {
		return err
	}
	return n.computes(ctx, pod{name: "after"}, "8Gi", when+" a new share computes")
}

// killed ends the MPS server, and then the control daemon, while a share computes.
func killed(ctx context.Context, n *node) error {
	programs := []string{"nvidia-cuda-mps-server", "nvidia-cuda-mps-control"}
	if n.simulated {
		// The stand-in of libcuda.so.1 starts no server.
		programs = programs[1:]
	}
	for _, program := range programs {
		p := pod{name: "victim", steps: []string{"info", "run", "12", smallKernel}}
		if err := n.claim(ctx, p, "share.nvidia.com", "8Gi", "25"); err != nil {
			return err
		}
		// The server starts with the first context.
		limit, cancel := context.WithTimeout(ctx, time.Minute)
		err := n.until(limit, func() error {
			out, err := n.kubectl(ctx, "", "--namespace", namespace, "logs", p.name)
			if err == nil && !strings.Contains(out, `"info"`) {
				err = errors.New("the program has no context")
			}
			return err
		})
		cancel()
		if err := cmp.Or(err, kill(program)); err != nil {
			return err
		}
		lines, err := n.finish(ctx, time.Minute, p)
		if err != nil {
			return err
		}
		printed := lines[p.name]
		if len(printed) == 0 {
			return fmt.Errorf("pod %s printed nothing after the end of %s", p.name, program)
		}
		n.report.figure("after the end of %s a running share printed %v", program, printed[len(printed)-1])
		if find(printed, "run") == nil { // the stand-in does not notice
			n.warned(ctx, p.name, v1alpha1.ConditionShareInterrupted)
		}
		n.show(ctx, "kubectl", "gpu", "explain", p.name, "--namespace", namespace)
		n.screens(ctx)
		if err := n.serves(ctx, "after the end of "+program); err != nil {
			return err
		}
		if err := n.clean(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kill ends all processes of a program. It fails if there is none.
func kill(program string) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		target, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		command, _, _ := strings.Cut(string(target), "\x00")
		if err != nil || filepath.Base(command) != program {
			continue
		}
		found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
	}
	if !found {
		return fmt.Errorf("no process of %s", program)
	}
	return nil
}

// users lets three users share a GPU, with and without mps.multiUser.
func users(ctx context.Context, n *node) (err error) {
	if err := n.threeUsers(ctx, "default"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.clean(ctx), n.install(ctx, "default")) }()
	if err := n.install(ctx, "oneuser"); err != nil {
		return err
	}
	return n.threeUsers(ctx, "oneuser")
}

// threeUsers checks that pods of three users compute on a GPU that they share.
func (n *node) threeUsers(ctx context.Context, rendering string) error {
	claim, err := n.template(ctx, "share.nvidia.com", "8Gi", "25", "")
	if err != nil {
		return err
	}
	first := pod{name: "user-1000", claim: claim, user: 1000, steps: []string{"info", "run", "10", smallKernel}}
	if err := n.start(ctx, first); err != nil {
		return err
	}
	if err := n.await(ctx, time.Minute, []string{first.name}, "Running"); err != nil {
		return err
	}
	second := pod{name: "user-2000", claim: claim, user: 2000, steps: []string{"info", "run", "3", smallKernel}}
	third := pod{name: "user-3000", claim: claim, user: 3000, steps: second.steps}
	if err := n.start(ctx, second, third); err != nil {
		return err
	}
	if err := n.await(ctx, time.Minute, []string{second.name, third.name}, "Running", "Succeeded"); err != nil {
		return err
	}
	n.show(ctx, "kubectl", "gpu", "explain", second.name, "--namespace", namespace)
	lines, err := n.finish(ctx, time.Minute, first, second, third)
	if err != nil {
		return err
	}
	perSecond := find(lines[first.name], "run").number("perSecond")
	n.report.check(perSecond > 0, "%s: the first user does %.0f launches/s", rendering, perSecond)
	for _, later := range []pod{second, third} {
		waited := find(lines[later.name], "info").number("startSeconds")
		if waited > 5 {
			n.warned(ctx, later.name, v1alpha1.ConditionShareWaits)
		}
		perSecond := find(lines[later.name], "run").number("perSecond")
		n.report.check(perSecond > 0, "%s: the context of %s took %.1f s; %.0f launches/s", rendering, later.name, waited, perSecond)
	}
	return n.clean(ctx)
}

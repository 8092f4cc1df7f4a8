// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// fault is a fault that an administrator or user makes by hand. NS and NODE in its texts stand
// for the namespace of the test and for the node.
type fault struct {
	name string
	// make makes the fault.
	make func(t *testing.T, ns string)
	// command of kubectl gpu that names it.
	command string
	// code is the stable code of doctor's finding; "" if explain names the fault.
	code string
	// words and each of the remedies are in the first ten lines of the output. The first of the
	// words is gone when the remedies have been followed.
	words []string
	// facts are anywhere in the output, and hidden nowhere.
	facts, hidden []string
	// status is the exit status of the command that names it; 0 if any will do.
	status int
	// remedies are the beginnings of printed commands, which the test runs as they are printed.
	remedies []string
	// mend does what a remedy says without a command; it may be nil.
	mend func(t *testing.T, ns string)
	// rules is set if the fault or a remedy needs DeviceTaintRules, as kubectl gpu drain does.
	rules bool
	// stays is set if the mistake is in the command of the reader, so that nothing is mended.
	stays bool
}

// TestTwentyFaults makes faults by hand, one after the other. kubectl gpu explain or doctor must
// name each in the first ten lines, with a remedy that works when it is followed literally.
func TestTwentyFaults(t *testing.T) {
	nothingLeft(t)
	ns := namespaceFor(t, "faults")
	all := append(faultsOfHardware(), append(faultsOfInstallation(), faultsOfPods()...)...)
	if len(all) < 20 {
		t.Errorf("%d faults, want at least twenty", len(all))
	}
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) { f.test(t, ns) })
	}
}

func (f fault) test(t *testing.T, ns string) {
	if f.rules {
		needsKubernetes(t, "1.37", "DeviceTaintRules")
	}
	names := strings.NewReplacer("NODE", cluster.NodeName, "NS", ns)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		// Whatever state the fault left the agent in, the next one needs it.
		if t.Failed() {
			if err := agent.Start(ctx); err != nil {
				t.Error(err)
			}
		}
		if err := cluster.EmptyNamespace(ctx, ns); err != nil {
			t.Error(err)
		}
	})
	// A GPU that is still being released delays the next pod until the kubelet tries again.
	nothingLeft(t)
	f.make(t, ns)
	command := strings.Fields(names.Replace(f.command))
	var wanted []string
	if f.code != "" {
		wanted = append(wanted, " "+f.code+" ", "\n"+f.code+": ")
	}
	for _, word := range append(f.words, f.remedies...) {
		wanted = append(wanted, names.Replace(word))
	}
	out := waitPrinted(t, command, func(out string, status int) string {
		if f.status != 0 && status != f.status {
			return wrongStatus(status, f.status)
		}
		shown := firstLines(out)
		// On an older Kubernetes doctor first explains that it lacks DeviceTaintRules.
		if i := strings.Index(out, "\n"+f.code+": "); f.code != "" && i >= 0 && isOlderThan(t, "1.37") {
			shown += firstLines(out[i:])
		}
		return lacks(shown, wanted...)
	})
	for _, fact := range f.facts {
		if !strings.Contains(out, names.Replace(fact)) {
			t.Errorf("no %q in\n%s", names.Replace(fact), out)
		}
	}
	for _, text := range f.hidden {
		if strings.Contains(out, text) {
			t.Errorf("%q is printed:\n%s", text, out)
		}
	}
	for _, remedy := range f.remedies {
		follow(t, out, names.Replace(remedy))
	}
	if f.mend != nil {
		f.mend(t, ns)
	}
	if f.stays {
		return
	}
	waitPrinted(t, command, func(out string, _ int) string {
		first := firstLines(out)
		if failed := strings.Contains(first, "Error: ") && !strings.Contains(first, "Error: doctor found problems"); failed || first == "" {
			return "no answer"
		}
		gone := names.Replace(f.words[0])
		if f.code != "" {
			gone = " " + f.code + " "
		}
		if strings.Contains(first, gone) {
			return fmt.Sprintf("%q is still there after the remedy", gone)
		}
		return ""
	})
}

// breaks returns a function that makes a fault of the last GPU in the simulated hardware.
func breaks(args ...string) func(*testing.T, string) {
	return func(t *testing.T, _ string) {
		t.Cleanup(func() {
			heal(t)
			// A drained GPU stays cordoned.
			_, err := cluster.GPU(context.WithoutCancel(t.Context()), "uncordon", cluster.NodeName+"/"+broken)
			must(t, err)
			waitUnhealthy(t, broken, false)
		})
		sim(t, append(args, "--gpu", pciAddress(broken))...)
	}
}

// restartNode does to the last GPU what a restart of its node does.
func restartNode(t *testing.T, _ string) {
	sim(t, "reset", "--gpu", pciAddress(broken))
}

func faultsOfHardware() []fault {
	const gpu = "NODE/" + broken
	return []fault{
		xidUnderAPod(),
		{
			name: "a GPU off the bus", command: "doctor", code: "xid-79", rules: true, make: breaks("fault", "lost"),
			words:    []string{broken + " has the taint ", "then restart the node"},
			remedies: []string{"kubectl gpu drain " + gpu}, mend: restartNode,
		},
		missingNode(),
		foreignProcess(),
		{
			name: "a memory error", command: "doctor", code: "ecc", rules: true, make: breaks("fault", "ecc"),
			words:    []string{broken + " has the taint "},
			remedies: []string{"kubectl gpu drain " + gpu, "nvidia-smi --gpu-reset --id "},
		},
		{
			name: "a GPU that hangs", command: "doctor", code: "timeout", rules: true, make: breaks("fault", "hang"),
			words:    []string{broken + " has the taint ", "or restart the node"},
			remedies: []string{"kubectl gpu drain " + gpu},
			mend:     func(t *testing.T, _ string) { heal(t) },
		},
		{
			name: "a cordoned GPU", command: "explain all --namespace NS", rules: true,
			make: func(t *testing.T, ns string) {
				_, err := cluster.GPU(t.Context(), "cordon", cluster.NodeName+"/"+broken)
				must(t, err)
				apply(t, ns, claim("all", "count: 8", "")+pod("all", "all", ""))
			},
			words:    []string{broken + " of node NODE: an administrator took the GPU out of use (cordoned"},
			remedies: []string{"kubectl gpu uncordon " + gpu},
			mend:     func(t *testing.T, ns string) { ready(t, ns, "all") },
		},
		{
			name: "a taint of a rule", command: "doctor", code: "taint-of-rule", rules: true,
			make: func(t *testing.T, _ string) {
				cleared(t, "devicetaintrule/fan")
				apply(t, "", `
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {name: fan}
spec:
  deviceSelector: {driver: gpu.nvidia.com, pool: `+cluster.NodeName+`, device: `+broken+`}
  taint: {key: example.com/fan, effect: NoSchedule}
`)
			},
			words: []string{broken + " has the taint example.com/fan"}, remedies: []string{"kubectl delete devicetaintrule fan"},
		},
	}
}

// xidUnderAPod is a GPU that fails under a running pod.
func xidUnderAPod() fault {
	manifest := templated("train", claim("train", "", ""))
	var device string
	return fault{
		name: "an XID under a running pod", command: "explain train --namespace NS", status: 3,
		make: func(t *testing.T, ns string) {
			apply(t, ns, manifest)
			ready(t, ns, "train")
			device = report(t, ns)["train/main"].Device
			t.Cleanup(func() {
				heal(t)
				must(t, declareRepaired(context.WithoutCancel(t.Context()), "all"))
				waitUnhealthy(t, device, false)
			})
			sim(t, "fault", "xid", "--xid", "79", "--gpu", pciAddress(device))
		},
		words:    []string{"of node NODE has failed: the GPU has fallen off the bus (xid-79, for ", "for the program: ", "What to do"},
		hidden:   []string{"Ready is True"},
		remedies: []string{"kubectl delete pod train --namespace NS"},
		mend: func(t *testing.T, ns string) {
			must(t, cluster.WaitGone(t.Context(), ns, "train"))
			apply(t, ns, manifest)
			ready(t, ns, "train")
			if next := report(t, ns)["train/main"].Device; next == device {
				t.Errorf("the next pod has %s again, which has failed", device)
			}
		},
	}
}

// missingNode is a node on which nothing has loaded the kernel module nvidia-uvm. The next agent
// scans at its start.
func missingNode() fault {
	restart := func(t *testing.T) {
		must(t, agent.Kill(t.Context()))
		must(t, agent.Start(t.Context()))
	}
	return fault{
		name: "no device node of nvidia-uvm", command: "doctor", code: "device-node-missing",
		make: func(t *testing.T, _ string) {
			node, devices := filepath.Join(agent.SimDir(), "dev/nvidia-uvm"), filepath.Join(agent.SimDir(), "proc/devices")
			for _, path := range []string{node, devices} {
				must(t, os.Rename(path, path+".gone"))
				t.Cleanup(func() {
					if err := os.Rename(path+".gone", path); err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Error(err)
					}
				})
			}
			must(t, os.WriteFile(devices, []byte("195 nvidia\n"), 0o644))
			restart(t)
		},
		words: []string{"a device node that CUDA programs need does not exist on the node", "run nvidia-smi and nvidia-modprobe -u -c 0 as root on node NODE"},
		mend: func(t *testing.T, _ string) {
			node := filepath.Join(agent.SimDir(), "dev/nvidia-uvm")
			must(t, os.Rename(node+".gone", node))
			restart(t)
		},
	}
}

// foreignProcess is a process of a pod without a claim, on the GPU of another pod.
func foreignProcess() fault {
	var pid int
	var end func()
	return fault{
		name: "a process without a claim", command: "doctor", code: "foreign-process",
		make: func(t *testing.T, ns string) {
			runOn(t, "gpu-1b-00", "dgx-h100", "--reconcile-interval=2s")
			// The next agent starts on a node without claims.
			t.Cleanup(func() { must(t, cluster.EmptyNamespace(context.WithoutCancel(t.Context()), ns)) })
			apply(t, ns, claim("train", "", "")+pod("train", "train", "")+"---"+pod("stranger", "", ""))
			ready(t, ns, "train", "stranger")
			pid, end = computesOn(t, report(t, ns)["train/main"].Device, ns, "stranger")
		},
		words: []string{"a process without a claim for the device computes on it", "the log of the agent of node NODE names its pod or command"},
		mend: func(t *testing.T, _ string) {
			log, err := agent.Log(t.Context())
			must(t, err)
			if pid := fmt.Sprintf("pid=%d ", pid); !strings.Contains(log, pid) {
				t.Errorf("the agent's log does not have %s", pid)
			}
			end()
		},
	}
}

func faultsOfInstallation() []fault {
	labelled := func(key, value string) func(*testing.T, string) {
		return func(t *testing.T, _ string) {
			t.Cleanup(func() { label(t, key+"-") })
			label(t, key+"="+value)
		}
	}
	unlabel := func(key string) func(*testing.T, string) {
		return func(t *testing.T, _ string) { label(t, key+"-") }
	}
	return []fault{
		{
			name: "a misspelt word in a label", command: "doctor", code: "config-not-followed", make: labelled("gpu.nvidia.com/offer", "shaer"),
			words: []string{`"shaer" is unknown; known are: share, mig, timeslice`, "correct the label"}, mend: unlabel("gpu.nvidia.com/offer"),
		},
		{
			name: "a misspelt label", command: "doctor", code: "label-unknown", make: labelled("gpu.nvidia.com/ofer", "share"),
			words: []string{"gpu.nvidia.com/ofer", "if you mean gpu.nvidia.com/offer, write that; otherwise remove the label"}, mend: unlabel("gpu.nvidia.com/ofer"),
		},
		{
			name: "a configuration that does not exist", command: "doctor", code: "config-not-followed", make: labelled("gpu.nvidia.com/config", "halvse"),
			words: []string{"gpu.nvidia.com/config=halvse is not followed", "correct the label"}, mend: unlabel("gpu.nvidia.com/config"),
		},
		{
			name: "a cordoned node", command: "explain train --namespace NS",
			make: func(t *testing.T, ns string) {
				t.Cleanup(func() { kubectl(t, "uncordon", cluster.NodeName) })
				kubectl(t, "cordon", cluster.NodeName)
				apply(t, ns, claim("train", "", "")+pod("train", "train", ""))
			},
			words: []string{"no node admits the pod"}, remedies: []string{"kubectl uncordon NODE"},
			mend: func(t *testing.T, ns string) { ready(t, ns, "train") },
		},
		{
			name: "an update with an image that does not exist", command: "doctor", code: "rollout-stuck",
			make: func(t *testing.T, _ string) {
				kubectl(t, "--namespace", harness.Namespace, "set", "image", "daemonset/"+harness.Namespace+"-agent", "*=localhost/no-such-image:1")
			},
			words: []string{"localhost/no-such-image:1"}, remedies: []string{"kubectl --namespace " + harness.Namespace + " rollout undo daemonset/" + harness.Namespace + "-agent"},
			mend: func(t *testing.T, _ string) { must(t, agent.WaitReady(t.Context())) },
		},
		{
			name: "no agent for a pod that ends", command: "explain train --namespace NS",
			make: func(t *testing.T, ns string) {
				apply(t, ns, claim("train", "", "")+pod("train", "train", ""))
				ready(t, ns, "train")
				kubectl(t, "patch", "daemonset", harness.Namespace+"-agent", "--namespace", harness.Namespace,
					"--type", "merge", "--patch", `{"spec": {"template": {"spec": {"nodeSelector": {"example.com/no-node": "true"}}}}}`)
				must(t, harness.Until(t.Context(), func(ctx context.Context) (bool, string, error) {
					out, err := cluster.Kubectl(ctx, "get", "pods", "--namespace", harness.Namespace, "--selector", "app.kubernetes.io/component=agent", "--output", "name")
					return out == "", out, err
				}))
				kubectl(t, "delete", "pod", "train", "--namespace", ns, "--wait=false")
			},
			words: []string{"no agent of the driver runs on node NODE: nothing prepares or releases claims there", "kubectl gpu doctor NODE"},
			mend:  func(t *testing.T, _ string) { must(t, agent.Start(t.Context())) },
		},
		{
			name: "no driver", command: "doctor", code: "agent-missing",
			make: func(t *testing.T, _ string) {
				must(t, agent.Stop(t.Context()))
			},
			words: []string{"no pod of an agent for the driver gpu.nvidia.com", "install the chart; for a driver with another name"},
			mend:  func(t *testing.T, _ string) { must(t, agent.Start(t.Context())) },
		},
	}
}

// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// peer is a node as a peer of others: with a product, and the type of the machine if it is known.
type peer struct{ model, machine string }

// checkPeers reports nodes that publish fewer GPUs of a product than most of their peers.
func checkPeers(c *Cluster) []Finding {
	numbers := map[peer]map[string]int{}
	for _, node := range c.nodes {
		for _, g := range node.GPUs {
			if g.Model == "" {
				continue
			}
			p := peer{g.Model, c.machineOf(node.Name)}
			if numbers[p] == nil {
				numbers[p] = map[string]int{}
			}
			numbers[p][node.Name]++
		}
	}
	var findings []Finding
	for p, byNode := range numbers {
		usual, peers := mostCommon(byNode)
		for _, node := range slices.Sorted(maps.Keys(byNode)) {
			if n := byNode[node]; n < usual {
				findings = append(findings, newFinding("gpus-missing", onNode(node),
					fmt.Sprintf("it publishes %s (%s); %s %d", fleet.Number(n, "GPU"), p.model, others(peers), usual),
					"a GPU may have fallen off the bus before the driver was loaded, or sit loosely",
					"compare nvidia-smi --list-gpus on the node with lspci and with the machine's papers; if the machine has no more GPUs, mute the finding"))
			}
		}
	}
	return orOK(findings, "no node publishes fewer GPUs of a product than its peers")
}

// machineOf returns the type of a node's machine; "" if it is not known. Clouds label it.
func (c *Cluster) machineOf(name string) string {
	if node := c.nodeOf(name); node != nil {
		return node.Labels[corev1.LabelInstanceTypeStable]
	}
	return ""
}

// mostCommon returns the most common number, and how many nodes have it. Of two that are as
// common it returns the larger one.
func mostCommon(byNode map[string]int) (number, nodes int) {
	times := map[int]int{}
	for _, n := range byNode {
		times[n]++
	}
	number = slices.MaxFunc(slices.Collect(maps.Keys(times)), func(a, b int) int {
		return cmp.Or(cmp.Compare(times[a], times[b]), cmp.Compare(a, b))
	})
	return number, times[number]
}

func others(nodes int) string {
	if nodes == 1 {
		return "another node with this product publishes"
	}
	return fmt.Sprintf("%d nodes with this product publish", nodes)
}

// checkDriverReleases reports products whose nodes have different releases of the NVIDIA driver.
func checkDriverReleases(c *Cluster) []Finding {
	releases := map[string]map[string][]string{}
	for _, node := range c.nodes {
		release := c.driverRelease(node)
		for _, g := range node.GPUs {
			if g.Model == "" || release == "" {
				continue
			}
			if releases[g.Model] == nil {
				releases[g.Model] = map[string][]string{}
			}
			if nodes := releases[g.Model]; !slices.Contains(nodes[release], node.Name) {
				nodes[release] = append(nodes[release], node.Name)
			}
		}
	}
	var findings []Finding
	for _, model := range slices.Sorted(maps.Keys(releases)) {
		if len(releases[model]) < 2 {
			continue
		}
		var parts []string
		for _, release := range slices.Sorted(maps.Keys(releases[model])) {
			parts = append(parts, release+" on "+list(releases[model][release]))
		}
		findings = append(findings, newFinding("driver-releases-differ", "product "+model, strings.Join(parts, "; "),
			"a program that runs on one node may fail on another, and a job across these nodes mixes releases",
			"if no update is under way, install one release of the NVIDIA driver on all nodes with this product"))
	}
	return orOK(findings, "nodes of one product have one release of the NVIDIA driver, as far as it is known")
}

// driverRelease returns the release of a node's NVIDIA driver; "" if it is not known. Without
// published devices that have it, it is the one in the facts.
func (c *Cluster) driverRelease(node fleet.Node) string {
	for _, g := range node.GPUs {
		for _, d := range g.Devices {
			if d.Published == nil {
				continue
			}
			if v := d.Published.Attributes[v1alpha1.AttributeDriverVersion].VersionValue; v != nil {
				return *v
			}
		}
	}
	if facts := c.Facts[node.Name].Value; facts != nil {
		// As in slices, whose versions have no leading zeros.
		numbers := strings.Split(facts.DriverVersion.Value, ".")
		for i, n := range numbers {
			numbers[i] = cmp.Or(strings.TrimLeft(n, "0"), n)
		}
		return strings.Join(numbers, ".")
	}
	return ""
}

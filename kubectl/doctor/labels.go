// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/catalog"
)

const (
	notFollowed = "the setting has no effect: the node keeps the configuration that it followed before, and without one offers only devices that claims hold"
	correct     = "correct the label, chart value or ConfigMap that the finding names; the node follows it as soon as it is right"
)

// nodeLabels are the labels of nodes that agents follow.
var nodeLabels = []string{v1alpha1.LabelConfig, v1alpha1.LabelOffer}

// checkNodeConfig reports labels and files that agents do not follow. The agent knows best; if it
// cannot be queried, the labels say a part of it.
func checkNodeConfig(c *Cluster) []Finding {
	labels := map[string]map[string]string{}
	for _, node := range c.Nodes {
		labels[node.Name] = node.Labels
	}
	var findings []Finding
	known := slices.Concat(nodeLabels, c.selectingLabels())
	for _, name := range sets.List(sets.KeySet(c.Facts).Union(sets.KeySet(labels))) {
		for _, f := range append(c.judgeNodeConfig(name, labels[name]), misspelt(labels[name], known)...) {
			f.Object = onNode(name)
			findings = append(findings, f)
		}
	}
	return orOK(findings, "no node has a label of the driver")
}

// judgeNodeConfig returns the finding about a node; none about one that does not concern the driver.
func (c *Cluster) judgeNodeConfig(node string, labels map[string]string) []Finding {
	answer := c.Facts[node]
	offer, offers := labels[v1alpha1.LabelOffer]
	_, wrong := catalog.ParseOfferLabel(offer)
	var set []string
	for _, label := range nodeLabels {
		if value, ok := labels[label]; ok {
			set = append(set, label+"="+value)
		}
	}
	switch {
	case answer.Value != nil && answer.Value.ConfigProblem != "":
		return []Finding{nodeFinding("config-not-followed", answer.Value.ConfigProblem, notFollowed, correct)}
	case answer.Value != nil:
		return []Finding{fine("the agent reports no label or file that it does not follow")}
	case offers && wrong != nil && c.mayHaveAgent(node):
		return []Finding{nodeFinding("config-not-followed", fmt.Sprintf("label %s=%s: %v", v1alpha1.LabelOffer, offer, wrong), notFollowed, correct)}
	case len(set) > 0 && !c.mayHaveAgent(node):
		return []Finding{nodeFinding("label-without-agent", "it has the label "+strings.Join(set, ", ")+" and no agent", "the label has no effect, and the node publishes no GPUs",
			"if the node has GPUs, check that it has one of the labels in nodes.withAnyLabel of the chart and none in nodes.withoutLabels; otherwise remove the label")}
	case len(set) > 0:
		reason := cmp.Or(c.Unread[AgentFacts], c.Unread[DriverPods], "its agent was not queried")
		if answer.Err != nil {
			reason = answer.Err.Error()
		}
		return []Finding{nodeFinding("config-not-checked", fmt.Sprintf("it has the label %s; %s", strings.Join(set, ", "), reason), "whether the agent follows the label is not known",
			"bind the Role gpu-dra-driver-viewer in the driver's namespace to your user, or read the log of the agent")}
	}
	return nil
}

// mayHaveAgent reports whether an agent runs on a node, or the agents are not known.
func (c *Cluster) mayHaveAgent(node string) bool {
	return c.Unread[DriverPods] != "" || c.hasAgent(node)
}

// misspelt returns a finding for each label that resembles one of the driver and is not known.
func misspelt(labels map[string]string, known []string) []Finding {
	var all []Finding
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		ours := strings.HasPrefix(key, v1alpha1.GroupName+"/")
		if slices.Contains(known, key) || !ours && !slices.ContainsFunc(nodeLabels, func(l string) bool { return isNear(l, key) }) {
			continue
		}
		meant := slices.MinFunc(nodeLabels, func(a, b string) int { return cmp.Compare(fleet.Distance(a, key), fleet.Distance(b, key)) })
		all = append(all, nodeFinding("label-unknown", "it has the label "+key+", which the driver does not know", "the label has no effect",
			"if you mean "+meant+", write that; otherwise remove the label or use another prefix"))
	}
	return all
}

// mostTypos is the number of wrong letters up to which a label resembles another.
const mostTypos = 2

// isNear reports whether a label differs from another in at most [mostTypos] letters.
func isNear(a, b string) bool {
	return max(len(a)-len(b), len(b)-len(a)) <= mostTypos && fleet.Distance(a, b) <= mostTypos
}

// selectingLabels returns the labels by which DaemonSets of the driver select nodes.
func (c *Cluster) selectingLabels() []string {
	var keys []string
	for _, set := range c.DaemonSets {
		spec := set.Spec.Template.Spec
		keys = slices.AppendSeq(keys, maps.Keys(spec.NodeSelector))
		if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
			continue
		}
		for _, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, e := range term.MatchExpressions {
				keys = append(keys, e.Key)
			}
		}
	}
	return keys
}

// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// checkNodes reports nodes with GPUs whose kubelet does not report.
func checkNodes(c *Cluster) []Finding {
	var findings []Finding
	for _, node := range c.nodesWithGPUs() {
		for _, condition := range node.Status.Conditions {
			if condition.Type != corev1.NodeReady || condition.Status == corev1.ConditionTrue {
				continue
			}
			findings = append(findings, Finding{
				Object: onNode(node.Name), Code: "node-not-ready", State: Problem,
				Found:   strings.TrimSuffix(fmt.Sprintf("it is not ready%s: %s: %s", c.since(condition.LastTransitionTime.Time), condition.Reason, condition.Message), ": "),
				Meaning: "its GPUs and claims are shown as it last reported them, and none of its claims is prepared or released",
				Remedy:  "run kubectl describe node " + node.Name + ", and read the log of the kubelet there (journalctl --unit kubelet)",
			})
		}
	}
	return orOK(findings, "no node with GPUs reports that it is not ready")
}

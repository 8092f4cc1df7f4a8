// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// sight has the claims of the load at one moment.
type sight struct {
	// containers are those that existed before and after everything else was read.
	containers []container
	// records of the agents. lasting are those that did not change while claims were read.
	records, lasting []use
	// pods and claims by name. err is set if the API server did not answer.
	pods   map[string]corev1.Pod
	claims map[string]resourceapi.ResourceClaim
	err    error
}

// use is a device of a claim, by one source.
type use struct {
	node, claim, device string
	// gpu is the GPU of the device, as the source names it.
	gpu string
}

// container is one of the load, as its runtime was told to run it. The device has the nodes of all capabilities of MIG.
type container struct {
	use
	pod  types.UID
	gpus int // number of device nodes of GPUs
}

func look(ctx context.Context, namespace string, nodes []*harness.Cluster) sight {
	specs := func(n *harness.Cluster) string {
		return filepath.Join(n.StateDir, "containerd/state/io.containerd.runtime.v2.task/k8s.io/*/config.json")
	}
	records := func(n *harness.Cluster) string { return filepath.Join(n.DriverDir(), "agent/claims/*.record") }

	specsBefore, before := read(nodes, specs), read(nodes, records)
	pods, podsErr := cluster.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	claims, claimsErr := cluster.Client.ResourceV1().ResourceClaims(namespace).List(ctx, metav1.ListOptions{})
	after, specsAfter := read(nodes, records), read(nodes, specs)

	s := sight{err: errors.Join(podsErr, claimsErr), pods: map[string]corev1.Pod{}, claims: map[string]resourceapi.ResourceClaim{}}
	for file, text := range before {
		uses := parseRecord(file.node, text)
		s.records = append(s.records, uses...)
		if bytes.Equal(text, after[file]) {
			s.lasting = append(s.lasting, uses...)
		}
	}
	for file, text := range specsBefore {
		if c, is := parseSpec(file.node, namespace, text); is && bytes.Equal(text, specsAfter[file]) && lives(filepath.Dir(file.path)) {
			s.containers = append(s.containers, c)
		}
	}
	if s.err == nil {
		for _, pod := range pods.Items {
			s.pods[pod.Name] = pod
		}
		for _, claim := range claims.Items {
			s.claims[claim.Name] = claim
		}
	}
	return s
}

// nodeFile is a file in the folder of a node.
type nodeFile struct{ node, path string }

// read reads files of all nodes by a pattern. A file that goes meanwhile is left out.
func read(nodes []*harness.Cluster, pattern func(*harness.Cluster) string) map[nodeFile][]byte {
	texts := map[nodeFile][]byte{}
	for _, node := range nodes {
		paths, _ := filepath.Glob(pattern(node)) // the pattern is valid
		for _, path := range paths {
			if text, err := os.ReadFile(path); err == nil {
				texts[nodeFile{node.NodeName, path}] = text
			}
		}
	}
	return texts
}

// parseRecord returns the devices of an agent's record, which has an envelope in its first line.
func parseRecord(node string, text []byte) []use {
	var record struct {
		Claim struct {
			Name string `json:"name"`
		} `json:"claim"`
		Devices []struct {
			Device string `json:"device"`
		} `json:"devices"`
	}
	_, payload, _ := bytes.Cut(text, []byte("\n"))
	if json.Unmarshal(payload, &record) != nil {
		return nil // its containers have no record then
	}
	var uses []use
	for _, d := range record.Devices {
		uses = append(uses, newUse(node, record.Claim.Name, d.Device))
	}
	return uses
}

func newUse(node, claim, device string) use {
	gpu, _, _ := strings.Cut(device, "-mig-")
	return use{node, claim, device, gpu}
}

// parseSpec reads the specification of a container of the load.
func parseSpec(node, namespace string, text []byte) (_ container, is bool) {
	var spec struct {
		Annotations map[string]string `json:"annotations"`
		Linux       struct {
			Devices []struct {
				Path string `json:"path"`
			} `json:"devices"`
		} `json:"linux"`
	}
	if json.Unmarshal(text, &spec) != nil {
		return container{}, false // it is being written
	}
	of := func(key string) string { return spec.Annotations["io.kubernetes.cri."+key] }
	if of("container-type") != "container" || of("sandbox-namespace") != namespace {
		return container{}, false
	}
	c := container{use: use{node: node, claim: of("container-name")}, pod: types.UID(of("sandbox-uid"))}
	var parts []string
	for _, d := range spec.Linux.Devices {
		if name, is := strings.CutPrefix(d.Path, "/dev/nvidia-caps/"); is {
			parts = append(parts, name)
		} else if number := strings.TrimPrefix(d.Path, "/dev/nvidia"); number != "" && strings.Trim(number, "0123456789") == "" {
			c.gpu, c.gpus = d.Path, c.gpus+1
		}
	}
	slices.Sort(parts)
	c.device = strings.Join(parts, " ")
	return c, true
}

// lives reports whether the first process of a container has not ended. The name of the folder is the ID of the container.
func lives(folder string) bool {
	pid, err := os.ReadFile(filepath.Join(folder, "init.pid"))
	if err != nil {
		return false
	}
	groups, err := os.ReadFile(filepath.Join("/proc", string(pid), "cgroup"))
	return err == nil && bytes.Contains(groups, []byte(filepath.Base(folder)))
}

// compare looks for devices of two claims, by each source, and compares each container with the record and allocation of its claim.
func (l *load) compare(s sight) {
	given, recorded, allocated := []use{}, map[string]use{}, []use{}
	for _, r := range s.records {
		recorded[r.node+"/"+r.claim] = r
	}
	for _, claim := range s.claims {
		if claim.Status.Allocation != nil {
			for _, d := range claim.Status.Allocation.Devices.Results {
				allocated = append(allocated, newUse(d.Pool, claim.Name, d.Device))
			}
		}
	}
	for _, c := range s.containers {
		given = append(given, c.use)
		r, has := recorded[c.node+"/"+c.claim]
		switch {
		case !has:
			l.find("a container of claim %s runs on node %s, whose agent has no record of the claim", c.claim, c.node)
			continue
		case !l.isPath(r, c.gpu), c.gpus != 1, (kindOf(c.claim) == "mig") != (c.device != ""):
			l.find("a container of claim %s has %d GPUs, %s and %q, by the record of node %s it has %s", c.claim, c.gpus, c.gpu, c.device, c.node, r.device)
		case s.err == nil && (!slices.Contains(allocated, r) || !isReserved(s.claims[c.claim], c.pod)):
			l.find("a container of claim %s has %s of node %s, the claim is allocated %+v", c.claim, r.device, c.node, s.claims[c.claim].Status)
		}
		l.compared++
	}
	for source, uses := range map[string][]use{"containers": given, "records": s.lasting, "allocations": allocated} {
		for i, a := range uses {
			for _, b := range uses[:i] {
				if conflict(a, b) {
					l.find("by %s, two claims have devices that exclude each other: %+v and %+v", source, a, b)
				}
			}
		}
	}
}

func isReserved(claim resourceapi.ResourceClaim, pod types.UID) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == pod })
}

// isPath reports whether containers always have a GPU at one path, and no other GPU there.
func (l *load) isPath(r use, path string) bool {
	for key, value := range map[string]string{r.node + " " + r.gpu: path, r.node + " " + path: r.gpu} {
		if known, is := l.paths[key]; is && known != value {
			return false
		}
		l.paths[key] = value
	}
	return true
}

// conflict reports whether two devices may not be held by two claims at a time.
func conflict(a, b use) bool {
	if a.claim == b.claim || a.node != b.node || a.gpu != b.gpu {
		return false
	}
	kind := kindOf(a.claim)
	return kind != kindOf(b.claim) || kind == "whole" || kind == "mig" && a.device == b.device
}

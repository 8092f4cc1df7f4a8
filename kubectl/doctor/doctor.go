// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	agentv1 "github.com/gpu-dra/gpu-dra-driver/api/agent/v1"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
)

// State is the result of a check.
type State string

// The states, the most urgent first.
const (
	// Problem means that claims fail, or will.
	Problem State = "problem"
	// Warning means that something works less well than it could, or that it may fail later.
	Warning State = "warning"
	// Unknown means that the check could not read its inputs.
	Unknown State = "unknown"
	OK      State = "ok"
)

// urgency orders findings by their states.
func urgency(f Finding) int { return slices.Index([]State{Problem, Warning, Unknown, OK}, f.State) }

// Finding is the result of a check of an object.
type Finding struct {
	Check string `json:"check"`
	// Code is the name of one of [Codes], or of a cause that this release does not know. It is
	// empty if the state is ok.
	Code string `json:"code,omitempty"`
	// Object is "cluster", or the kind and the name of an object.
	Object string `json:"object"`
	State  State  `json:"state"`
	// Found is the state of the object, with its values.
	Found string `json:"found"`
	// Meaning is the consequence, and Remedy the change that ends it. Both are empty if
	// the state is ok.
	Meaning string `json:"meaning,omitempty"`
	Remedy  string `json:"remedy,omitempty"`
	// Read is the address of the section about the code.
	Read string `json:"read,omitempty"`
	// Muted is set by [Mute].
	Muted bool `json:"muted,omitempty"`
}

// Title returns the code of the finding, or the check that found nothing wrong.
func (f Finding) Title() string { return cmp.Or(f.Code, f.Check) }

// List is a list of API objects, as the API server names it.
type List string

// The lists that checks need.
const (
	Nodes      List = "nodes"
	Pods       List = "pods"
	Claims     List = "resourceclaims.resource.k8s.io"
	Slices     List = "resourceslices.resource.k8s.io"
	Classes    List = "deviceclasses.resource.k8s.io"
	Rules      List = "devicetaintrules.resource.k8s.io"
	Templates  List = "resourceclaimtemplates.resource.k8s.io"
	DaemonSets List = "daemonsets.apps"
	Policies   List = "validatingadmissionpolicies.admissionregistration.k8s.io"
	Bindings   List = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
	// Server is the version and the resources of the API server.
	Server List = "the API server's version and resources"
	// DriverPods are the pods of agents and supervisors.
	DriverPods List = "pods of the driver"
	// AgentFacts are the facts that agents serve.
	AgentFacts List = "facts of agents"
)

// Cluster is the objects of a cluster and the facts about its nodes.
type Cluster struct {
	fleet.Objects
	// Driver is the name of the driver.
	Driver string
	Now    time.Time
	// ServerVersion is the version of the API server, such as "v1.37.1".
	ServerVersion string
	// Resources are the served resources of resource.k8s.io/v1.
	Resources []string
	// Agents and Supervisors are the pods of the driver that have a node. Pending are its pods
	// without one, and DaemonSets own all of them.
	Agents, Supervisors, Pending []*corev1.Pod
	DaemonSets                   []*appsv1.DaemonSet
	Policies                     []*admissionv1.ValidatingAdmissionPolicy
	Bindings                     []*admissionv1.ValidatingAdmissionPolicyBinding
	// Templates are the claim templates of all namespaces.
	Templates []*resourceapi.ResourceClaimTemplate
	// Unread has the reason for each list that could not be read as a whole.
	Unread map[List]string
	// Facts are the answers of the agents, by the node.
	Facts map[string]Answer[agentv1.Node]

	// view and nodes are the devices of the driver and their holders. [Examine] makes them of the objects.
	view  *fleet.Fleet
	nodes []fleet.Node
}

// Answer is the value that an agent has returned, or the reason why it has not.
type Answer[T any] struct {
	Value *T
	Err   error
}

// check is one row of the list of checks.
type check struct {
	name string
	// needs are the lists without which the check cannot judge.
	needs []List
	judge func(*Cluster) []Finding
}

// checks returns all checks, in the order in which findings of one state are printed.
func checks() []check {
	return []check{
		{"server", []List{Server}, checkServer},
		{"resources", []List{Server}, checkResources},
		{"shares", []List{Slices}, checkShares},
		{"classes", []List{Classes}, checkClasses},
		{"missing-classes", []List{Classes, Claims, Templates}, checkMissingClasses},
		{"selectors", []List{Classes, Slices, Claims, Templates}, checkSelectors},
		{"extended-resources", []List{Classes, Nodes}, checkExtendedResources},
		{"policies", []List{Policies, Bindings}, checkPolicies},
		{"agents", []List{DriverPods}, checkAgents},
		{"rollouts", []List{DriverPods}, checkRollouts},
		{"supervisors", []List{DriverPods}, checkSupervisors},
		{"nodes", []List{Nodes, Slices}, checkNodes},
		{"slices", []List{Slices, DriverPods}, checkSlices},
		{"pools", []List{Slices}, checkPools},
		{"health", []List{Slices}, checkHealth},
		{"peers", []List{Slices}, checkPeers},
		{"driver-releases", []List{Slices}, checkDriverReleases},
		{"claims", []List{Claims}, checkClaims},
		{"prepared", []List{Claims}, checkPrepared},
		{"consumers", []List{Claims, Pods}, checkConsumers},
		{"limits", []List{Claims}, checkLimits},
		{"containers", []List{Claims, Pods, Classes}, checkContainers},
		{"drivers", []List{Slices}, checkDrivers},
		{"device-plugins", []List{Pods, Slices}, checkDevicePlugins},
		{"runtime-classes", []List{Pods, Slices}, checkRuntimeClasses},
		{"kubelets", []List{Nodes, Slices}, checkKubelets},
		{"facts", nil, checkFacts},
		{"node-config", nil, checkNodeConfig},
		{"cpu-manager", nil, checkCPUManager},
		{"driver", nil, eachNode(judgeDriver)},
		{"persistence", nil, eachNode(judgePersistence)},
		{"ecc", nil, eachNode(judgeECC)},
		{"fabric", nil, eachNode(judgeFabric)},
		{"clocks", nil, eachNode(judgeClocks)},
		{"pcie", nil, eachNode(judgePCIe)},
		{"acs", nil, eachNode(judgeACS)},
		{"iommu", nil, eachNode(judgeIOMMU)},
		{"peermem", nil, eachNode(judgePeermem)},
		{"memlock", nil, eachNode(judgeMemlock)},
		{"cgroup", nil, eachNode(judgeCgroup)},
		{"transparent-huge-pages", nil, eachNode(judgeTHP)},
		{"swap", nil, eachNode(judgeSwap)},
		{"governor", nil, eachNode(judgeGovernor)},
		{"kernel-log", nil, eachNode(judgeKernelLog)},
	}
}

// Examine returns the findings of all checks: first the most urgent ones, then in the order
// of the checks and the objects.
func Examine(c *Cluster) []Finding {
	own := *c
	own.view = fleet.New(c.Objects, fleet.Options{Driver: c.Driver, Features: fleet.FeaturesOf(c.Objects)})
	own.nodes = own.view.Nodes()
	c = &own
	findings := []Finding{}
	order := map[string]int{}
	for i, check := range checks() {
		order[check.name] = i
		found := c.unread(check.needs)
		if found == nil {
			found = check.judge(c)
		}
		for _, f := range found {
			f.Check = check.name
			if f.Code != "" {
				f.Read = Section(f.Code)
			}
			findings = append(findings, f)
		}
	}
	findings = withoutDerived(findings, len(c.nodes) > 0 || c.Unread[Slices] != "")
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(urgency(a), urgency(b)),
			cmp.Compare(order[a.Check], order[b.Check]), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Found, b.Found),
		)
	})
	return findings
}

// RoleViewer is the ClusterRole of the chart that lists what the commands show.
const RoleViewer = "gpu-dra-driver-viewer"

// unread returns a finding if one of the lists could not be read.
func (c *Cluster) unread(needs []List) []Finding {
	for _, list := range needs {
		if reason := c.Unread[list]; reason != "" {
			return []Finding{newFinding("list-not-readable", wholeCluster, reason, "these checks need lists that you cannot read",
				"bind the ClusterRole "+RoleViewer+", and in the driver's namespace the Role of that name, to your user")}
		}
	}
	return nil
}

const wholeCluster = "cluster"

// newFinding returns a finding with the state of its code.
func newFinding(code, object, found, meaning, remedy string) Finding {
	i := slices.IndexFunc(codes, func(c Code) bool { return c.Name == code })
	return Finding{Object: object, Code: code, State: codes[i].State, Found: found, Meaning: meaning, Remedy: remedy}
}

func ofCluster(code, found, meaning, remedy string) []Finding {
	return []Finding{newFinding(code, wholeCluster, found, meaning, remedy)}
}

func ok(found string) []Finding { return []Finding{{Object: wholeCluster, State: OK, Found: found}} }

// orOK returns the findings, or else one that all is well.
func orOK(findings []Finding, found string) []Finding {
	if len(findings) == 0 {
		return ok(found)
	}
	return findings
}

func onNode(node string) string { return "node " + node }

// list returns names in a sentence, at most five of them.
func list(names []string) string { return fleet.List(5, names) }

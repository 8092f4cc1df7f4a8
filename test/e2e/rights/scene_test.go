// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"context"
	"fmt"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	driver      = harness.DriverName
	otherDriver = "nic.example.com"

	driverNamespace   = "gpu-dra-driver"
	agentAccount      = "gpu-kubelet-plugin"
	supervisorAccount = "gpu-dra-driver-supervisor"
	viewerAccount     = "gpu-dra-driver-viewer"
	operatorRole      = "gpu-dra-driver-operator"
	tenant            = "tenant"

	// nodeB has no kubelet; for the API server it is a node like any other.
	nodeB = "node-b"
)

// who is one who tries.
type who string

const (
	// admin may do everything, which shows that the API server supports each attempt.
	admin who = "the administrator"
	// agentA's token is bound to the cluster's real node, as that of a process
	// that an administrator starts there.
	agentA who = "the agent of node A"
	// agentB's token is bound to a pod on node B, as the kubelet requests it.
	agentB who = "the agent of node B"
	// agentNowhere has the agent's account and no node.
	agentNowhere who = "the agent's account without a node"
	supervisor   who = "the supervisor"
	// neighbour is another account in the driver's namespace.
	neighbour who = "another account of the driver's namespace"
	// viewer is a user with the chart's roles for viewers, and viewerToken the account
	// whose tokens the user creates.
	viewer      who = "a viewer"
	viewerToken who = "the viewers' account"
	user        who = "a user's pod"
	// operator is a user with the chart's role for administrators of GPUs.
	operator who = "an administrator of GPUs"

	// almightyA is the agent of node A if RBAC allowed it everything, so that
	// only policies are in its way. almightyNowhere has no node.
	almightyA       who = "the almighty agent of node A"
	almightyNowhere who = "the almighty agent without a node"
)

func accounts() []who {
	return []who{admin, agentA, agentB, agentNowhere, supervisor, neighbour, viewer, viewerToken, user, operator}
}

// scene is the cluster with objects to try on, and a client for each one who
// tries.
type scene struct {
	nodeA, kubeconfig string
	clients           map[who]kubernetes.Interface
}

func newScene(ctx context.Context, cluster *harness.Cluster) (*scene, error) {
	if _, err := cluster.Kubectl(ctx, "apply", "-f", "deployments/static/install.yaml"); err != nil {
		return nil, err
	}
	s := &scene{nodeA: cluster.NodeName, kubeconfig: cluster.Kubeconfig, clients: map[who]kubernetes.Interface{admin: cluster.Client}}
	for _, step := range []func(context.Context, *harness.Cluster) error{s.makeNodeB, s.makeSlices, s.makeClaims, s.makeEvent, s.makeSecrets, s.makeViewer, s.makeOperator, s.enter} {
		if err := step(ctx, cluster); err != nil {
			return nil, err
		}
	}
	return s, s.waitForPolicies(ctx)
}

func (s *scene) makeNodeB(ctx context.Context, c *harness.Cluster) error {
	if _, err := c.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeB}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := c.CreateNamespace(ctx, tenant); err != nil {
		return err
	}
	if err := c.CreateNamespace(ctx, driverNamespace); err != nil {
		return err
	}
	// The agent's pod on node B, which no kubelet starts.
	_, err := c.Client.CoreV1().Pods(driverNamespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-b"},
		Spec: corev1.PodSpec{
			NodeName:           nodeB,
			ServiceAccountName: agentAccount,
			Containers:         []corev1.Container{{Name: "agent", Image: "agent"}},
			// Node B has no kubelet to confirm the end of the pod.
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
		},
	}, metav1.CreateOptions{})
	return err
}

func (s *scene) makeSlices(ctx context.Context, c *harness.Cluster) error {
	for name, slice := range map[string]*resourceapi.ResourceSlice{
		"slice-a":       sliceOf(driver, s.nodeA, s.nodeA),
		"slice-b":       sliceOf(driver, nodeB, nodeB),
		"slice-a-other": sliceOf(otherDriver, s.nodeA, s.nodeA),
	} {
		slice.Name = name
		slice.Spec.Devices = append(slice.Spec.Devices, gpuOf("gpu-1")) // which no claim has
		if _, err := c.Client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create %s: %w", name, err)
		}
	}
	return nil
}

// gpuOf returns a GPU that the chart's classes select.
func gpuOf(name string) resourceapi.Device {
	return resourceapi.Device{
		Name:       name,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": {StringValue: ptr.To("gpu")}},
		Capacity:   map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"memory": {Value: resource.MustParse("80Gi")}},
	}
}

// sliceOf has one GPU and no name.
func sliceOf(driver, node, pool string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   driver,
			NodeName: ptr.To(node),
			Pool:     resourceapi.ResourcePool{Name: pool, ResourceSliceCount: 1},
			Devices:  []resourceapi.Device{gpuOf("gpu-0")},
		},
	}
}

// makeClaims makes claims that are allocated, as the scheduler would.
func (s *scene) makeClaims(ctx context.Context, c *harness.Cluster) error {
	ours := func(node string) resourceapi.DeviceRequestAllocationResult {
		return resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: driver, Pool: node, Device: "gpu-0"}
	}
	theirs := resourceapi.DeviceRequestAllocationResult{Request: "nic", Driver: otherDriver, Pool: s.nodeA, Device: "nic-0"}
	for _, claim := range []struct {
		name    string
		node    string // empty for every node
		results []resourceapi.DeviceRequestAllocationResult
	}{
		{"claim-a", s.nodeA, []resourceapi.DeviceRequestAllocationResult{ours(s.nodeA)}},
		{"claim-b", nodeB, []resourceapi.DeviceRequestAllocationResult{ours(nodeB)}},
		{"claim-a-both", s.nodeA, []resourceapi.DeviceRequestAllocationResult{ours(s.nodeA), theirs}},
		{"claim-anywhere", "", []resourceapi.DeviceRequestAllocationResult{ours(s.nodeA)}},
		{"claim-free", "", nil},
	} {
		if err := s.makeClaim(ctx, c.Client, claim.name, claim.node, claim.results); err != nil {
			return fmt.Errorf("make %s: %w", claim.name, err)
		}
	}
	// The other driver has reported on its device.
	return s.report(ctx, admin, "claim-a-both", otherDriver, metav1.PatchOptions{})
}

func (s *scene) makeClaim(ctx context.Context, client kubernetes.Interface, name, node string, results []resourceapi.DeviceRequestAllocationResult) error {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, request := range []string{"gpu", "nic"} {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, resourceapi.DeviceRequest{
			Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com"},
		})
	}
	claims := client.ResourceV1().ResourceClaims(tenant)
	claim, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	if err != nil || results == nil {
		return err
	}
	claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results}}
	if node != "" {
		claim.Status.Allocation.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
		}}}
	}
	_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// makeEvent creates an event of the agent of node A.
func (s *scene) makeEvent(ctx context.Context, c *harness.Cluster) error {
	event := s.healthEvent(s.nodeA)
	event.Name = "old"
	_, err := c.Client.EventsV1().Events(tenant).Create(ctx, event, metav1.CreateOptions{})
	return err
}

func (s *scene) makeSecrets(ctx context.Context, c *harness.Cluster) error {
	for _, namespace := range []string{driverNamespace, tenant} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}
		if _, err := c.Client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// makeViewer binds the roles of viewers to an account of the tenant.
func (s *scene) makeViewer(ctx context.Context, c *harness.Cluster) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "viewer"}}
	if _, err := c.Client.CoreV1().ServiceAccounts(tenant).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: account.Name}}
	meta := metav1.ObjectMeta{Name: "viewers"}
	_, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: viewerAccount},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.Client.RbacV1().RoleBindings(driverNamespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: viewerAccount},
	}, metav1.CreateOptions{})
	return err
}

// makeOperator binds the role of administrators of GPUs to an account of the tenant. It also
// makes a pod to evict and a rule to delete.
func (s *scene) makeOperator(ctx context.Context, c *harness.Cluster) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "operator"}}
	if _, err := c.Client.CoreV1().ServiceAccounts(tenant).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.Client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operators"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: account.Name}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: operatorRole},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Pods(tenant).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "to-evict"},
		Spec:       corev1.PodSpec{NodeName: nodeB, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: ptr.To(int64(0))},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	rule := ruleOf("rule")
	_, err = c.Client.ResourceV1().DeviceTaintRules().Create(ctx, rule, metav1.CreateOptions{})
	return err
}

// ruleOf returns a rule that taints no device.
func ruleOf(name string) *resourceapi.DeviceTaintRule {
	return &resourceapi.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.DeviceTaintRuleSpec{Taint: resourceapi.DeviceTaint{Key: "example.com/t", Effect: resourceapi.DeviceTaintEffectNoSchedule}},
	}
}

// enter creates a token for every account, and a client with it.
func (s *scene) enter(ctx context.Context, c *harness.Cluster) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return err
	}
	a, err := c.Client.CoreV1().Nodes().Get(ctx, s.nodeA, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod, err := c.Client.CoreV1().Pods(driverNamespace).Get(ctx, "agent-b", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, one := range []struct {
		who                who
		namespace, account string
		bound              *authv1.BoundObjectReference
	}{
		{agentA, driverNamespace, agentAccount, &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: a.Name, UID: a.UID}},
		{agentB, driverNamespace, agentAccount, &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		{agentNowhere, driverNamespace, agentAccount, nil},
		{supervisor, driverNamespace, supervisorAccount, nil},
		{neighbour, driverNamespace, "default", nil},
		{viewer, tenant, "viewer", nil},
		{operator, tenant, "operator", nil},
		{viewerToken, driverNamespace, viewerAccount, nil},
		{user, tenant, "default", nil},
	} {
		token, err := c.Client.CoreV1().ServiceAccounts(one.namespace).CreateToken(ctx, one.account, &authv1.TokenRequest{
			Spec: authv1.TokenRequestSpec{BoundObjectRef: one.bound},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("a token for %s: %w", one.who, err)
		}
		own := rest.AnonymousClientConfig(config)
		own.BearerToken = token.Status.Token
		own.QPS = -1
		if s.clients[one.who], err = kubernetes.NewForConfig(own); err != nil {
			return err
		}
	}
	for _, one := range []struct {
		who           who
		account, node string
	}{
		{almightyA, agentAccount, s.nodeA},
		{almightyNowhere, agentAccount, ""},
	} {
		own := rest.CopyConfig(config)
		own.QPS = -1
		own.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + driverNamespace + ":" + one.account,
			Groups:   []string{"system:masters"},
		}
		if one.node != "" {
			own.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {one.node}}
		}
		if s.clients[one.who], err = kubernetes.NewForConfig(own); err != nil {
			return err
		}
	}
	return nil
}

// waitForPolicies: a policy holds a moment after it was created.
func (s *scene) waitForPolicies(ctx context.Context) error {
	return harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		slice := s.createSlice(ctx, agentA, sliceOf(driver, nodeB, nodeB))
		claim := s.deallocate(ctx, almightyA, "claim-b")
		event := s.createEvent(ctx, almightyA, s.healthEvent(nodeB))
		return slice != nil && claim != nil && event != nil, "a policy lets an account of the driver write objects of others", nil
	})
}

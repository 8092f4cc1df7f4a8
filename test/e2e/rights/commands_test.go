// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

// The cells of the table of commands and roles.
const (
	works       = "yes"
	ownOnly     = "own namespace"
	withoutNode = "no nodes"
	inPart      = "in part"
	refusedAll  = "no"
)

// binding is a role that a user has, in a namespace or, without one, in the whole cluster.
type binding struct{ namespace, kind, role string }

// commandUsers returns the roles of the users in the columns of the table, in their order.
func commandUsers() []struct {
	name  string
	roles []binding
} {
	own := func(role string) binding { return binding{tenant, "ClusterRole", role} }
	cluster := func(role string) binding { return binding{"", "ClusterRole", role} }
	return []struct {
		name  string
		roles []binding
	}{
		{"edit-own", []binding{own("edit")}},
		{"view-own-devices", []binding{own("view"), cluster("gpu-dra-driver-devices")}},
		{"view-all", []binding{cluster("view")}},
		{"facts", []binding{cluster(viewerAccount), {driverNamespace, "Role", viewerAccount}}},
		{"admin-all", []binding{cluster("cluster-admin")}},
	}
}

// Users read in the table of docs/user/kubectl.md which role to request. Each cell is tried with the
// command.
func TestTheTableOfCommandsAndRoles(t *testing.T) {
	rows := commandTable(t)
	makeWaitingPod(t)
	var kubeconfigs []string
	for _, user := range commandUsers() {
		kubeconfigs = append(kubeconfigs, kubeconfigOf(t, user.name, user.roles))
	}
	untilAggregated(t, kubeconfigs[2])
	for _, row := range rows {
		if len(row) != len(kubeconfigs)+1 {
			t.Fatalf("the row %q has %d cells, want the command and one for each of %d users", row, len(row), len(kubeconfigs))
		}
		for i, user := range commandUsers() {
			t.Run(strings.ReplaceAll(row[0], "/", ".")+" as "+user.name, func(t *testing.T) {
				status, out := runCommand(t, kubeconfigs[i], slices.Concat(strings.Fields(row[0]), map[string][]string{
					"free": {"gpu.nvidia.com"}, "explain": {"waits"}, "room": {"waits"}, "topo": {world.nodeA},
					"plan": {"--filename", "../../../demo/whole-gpu"},
				}[row[0]]))
				if got := cellOf(out); got != row[i+1] {
					t.Errorf("%q, want %q; exit status %d:\n%s", got, row[i+1], status, out)
				}
			})
		}
	}
}

// commandTable returns the cells of the table.
func commandTable(t *testing.T) [][]string {
	t.Helper()
	document, err := os.ReadFile("../../../docs/user/kubectl.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(document), "\n## Rights\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows [][]string
	for line := range strings.SplitSeq(section, "\n") {
		if strings.Count(line, "|") < 5 || !strings.HasPrefix(line, "| `") {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
			cells = append(cells, strings.Trim(cell, " `"))
		}
		rows = append(rows, cells)
	}
	if len(rows) < 8 {
		t.Fatalf("the table has the rows %q", rows)
	}
	return rows
}

var missingRight = regexp.MustCompile(`(?i)[^\n]*(no right|without the right|permission denied|is forbidden)[^\n]*`)

// What explain prints before and after the lists that its user may not read.
const withoutRight, mayBeInUse = "without the right to list ", " of the whole cluster, devices that seem free may be in use"

// cellOf returns the cell of the table for what a command printed.
func cellOf(out string) string {
	var ownSpace, nodes, others int
	for _, line := range missingRight.FindAllString(out, -1) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "You have no right") && strings.Contains(line, "only of "+tenant):
			ownSpace++
		case strings.HasPrefix(line, "You have no right to list nodes: "), strings.HasPrefix(line, withoutRight+"nodes, "):
			nodes++
		case strings.HasPrefix(line, withoutRight) && strings.Contains(line, mayBeInUse):
			ownSpace++
		default:
			others++
		}
	}
	switch {
	// The exit status alone is not an error: it can be a finding.
	case strings.Contains(out, "Error: ") && !strings.Contains(out, "Error: doctor found problems"):
		if others == 0 {
			return "an error about something else"
		}
		return refusedAll
	case others > 0:
		return inPart
	case ownSpace > 0:
		return ownOnly
	case nodes > 0:
		return withoutNode
	}
	return works
}

func runCommand(t *testing.T, kubeconfig string, args []string) (status int, output string) {
	t.Helper()
	var out bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
	status = commands.Run(t.Context(), streams, append(args, "--kubeconfig", kubeconfig, "--namespace", tenant))
	return status, out.String()
}

// kubeconfigOf makes a user with these roles, and returns the path of its kubeconfig.
func kubeconfigOf(t *testing.T, name string, roles []binding) string {
	t.Helper()
	ctx, client := t.Context(), world.clients[admin]
	_, err := client.CoreV1().ServiceAccounts(tenant).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	check(t, err)
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenant, Name: name}}
	for _, b := range roles {
		meta, ref := metav1.ObjectMeta{Name: name + "-" + b.role}, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: b.kind, Name: b.role}
		if b.namespace != "" {
			_, err = client.RbacV1().RoleBindings(b.namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, metav1.CreateOptions{})
			check(t, err)
			continue
		}
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, metav1.CreateOptions{})
		check(t, err)
		t.Cleanup(func() {
			check(t, client.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(ctx), meta.Name, metav1.DeleteOptions{}))
		})
	}
	token, err := client.CoreV1().ServiceAccounts(tenant).CreateToken(ctx, name, &authv1.TokenRequest{}, metav1.CreateOptions{})
	check(t, err)
	config, err := clientcmd.LoadFromFile(world.kubeconfig)
	check(t, err)
	check(t, clientcmdapi.FlattenConfig(config))
	user := config.Contexts[config.CurrentContext].AuthInfo
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{user: {Token: token.Status.Token}}
	path := filepath.Join(t.TempDir(), name)
	check(t, clientcmd.WriteToFile(*config, path))
	return path
}

// untilAggregated waits until the role view has the rights of the chart's role.
func untilAggregated(t *testing.T, kubeconfig string) {
	t.Helper()
	check(t, harness.Until(t.Context(), func(context.Context) (bool, string, error) {
		_, out := runCommand(t, kubeconfig, []string{"get"})
		return cellOf(out) != refusedAll, out, nil
	}))
}

// makeWaitingPod makes a pod with a claim that no device meets.
func makeWaitingPod(t *testing.T) {
	t.Helper()
	ctx, client := t.Context(), world.clients[admin]
	_, err := client.ResourceV1().ResourceClaims(tenant).Create(ctx, &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "waits"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 3}},
		}}},
	}, metav1.CreateOptions{})
	check(t, err)
	// The account of a new namespace's pods is made a moment later.
	check(t, harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		_, err := client.CoreV1().Pods(tenant).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "waits"},
			Spec: corev1.PodSpec{
				ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("waits")}},
				Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
					Claims: []corev1.ResourceClaim{{Name: "gpu"}},
				}}},
			},
		}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	}))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		check(t, errors.Join(client.CoreV1().Pods(tenant).Delete(ctx, "waits", metav1.DeleteOptions{}),
			client.ResourceV1().ResourceClaims(tenant).Delete(ctx, "waits", metav1.DeleteOptions{})))
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

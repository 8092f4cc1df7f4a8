// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/commands/internal/plain"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/doctor"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/lists"
	"github.com/gpu-dra/gpu-dra-driver/kubectl/rows"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

func (o *options) newDoctor() *cobra.Command {
	all, ignored := false, []string{}
	cmd := &cobra.Command{
		Use: "doctor [NODE...]",
		Example: `  # The findings about one node, without a finding that is meant to be so
  kubectl gpu doctor node-1 --ignore swap-on`,
		Short: "Check the cluster and its nodes: findings, their meaning, and the remedy. It changes nothing",
		Long: "Check API server, classes, policies, agents, slices and claims, and the settings of the nodes, which the agents report. " +
			"It changes nothing. The exit status is 1 if it finds a problem. " +
			gpu.Page("docs/admin/findings.md") + " has a section for each code of a finding.",
		RunE: func(cmd *cobra.Command, nodes []string) error {
			c, err := o.examined(cmd.Context(), nodes)
			if err != nil {
				return err
			}
			if err := checkNodes(c, nodes); err != nil {
				return err
			}
			findings := ofNodes(doctor.Examine(c), nodes)
			if err := doctor.Mute(findings, ignored); err != nil {
				return err
			}
			return o.printFindings(findings, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "print also the checks that found nothing wrong")
	cmd.Flags().StringSliceVar(&ignored, "ignore", nil, "mute findings with these `CODES`: they are counted, and do not change the exit status")
	return cmd
}

// examined reads a cluster for the checks. A list that the user may not read is in Unread.
func (o *options) examined(ctx context.Context, nodes []string) (*doctor.Cluster, error) {
	r, err := o.dial()
	if err != nil {
		return nil, err
	}
	objects, refused, err := lists.Objects(ctx, r.client, r.namespace)
	if errors.Is(err, gpu.ErrNotSupported) {
		for _, list := range []doctor.List{doctor.Claims, doctor.Slices, doctor.Classes} {
			refused[list] = "the API server does not serve resource.k8s.io/v1"
		}
	} else if err != nil {
		return nil, err
	}
	return o.examine(ctx, r.client, objects, refused, nodes)
}

// checkNodes returns an error for the first name that is not a node's. It returns nil if the user
// may not list nodes.
func checkNodes(c *doctor.Cluster, names []string) error {
	if c.Unread[doctor.Nodes] != "" {
		return nil
	}
	all := fleet.New(c.Objects, fleet.Options{}).NodeNames() // also nodes that are gone
	return checkNames("node", names, all, "kubectl get nodes lists the nodes")
}

// examine reads the rest that checks need, and returns it with the objects of the cluster.
func (o *options) examine(ctx context.Context, client kubernetes.Interface, objects fleet.Objects, refused map[doctor.List]string, nodes []string) (*doctor.Cluster, error) {
	c := &doctor.Cluster{Objects: objects, Driver: o.driver, Now: time.Now(), Unread: maps.Clone(refused)}
	for _, read := range []func(context.Context, kubernetes.Interface, *doctor.Cluster) error{readServer, readPolicies, readTemplates, o.readDriver} {
		if err := read(ctx, client, c); err != nil {
			return nil, err
		}
	}
	readFacts(ctx, client, c, nodes)
	return c, nil
}

// note records that a list could not be read, if the reason is a missing right. It returns
// other errors.
func note(c *doctor.Cluster, list doctor.List, err error) error {
	if apierrors.IsForbidden(err) {
		c.Unread[list] = "You have no right to list " + string(list) + "."
		return nil
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", list, err)
	}
	return nil
}

// readServer reads the version of the API server and the resources for devices.
func readServer(_ context.Context, client kubernetes.Interface, c *doctor.Cluster) error {
	info, err := client.Discovery().ServerVersion()
	if err == nil {
		c.ServerVersion = info.GitVersion
		// An error means that the API server does not serve this version.
		if served, err := client.Discovery().ServerResourcesForGroupVersion(resourceapi.SchemeGroupVersion.String()); err == nil {
			c.Resources = fleet.Each(served.APIResources, func(r metav1.APIResource) string { return r.Name })
		}
	}
	return note(c, doctor.Server, err)
}

// ofDriver selects the objects of the driver's chart.
const ofDriver = doctor.NameLabel + "=" + doctor.ChartName

// selected returns the list function of a client for the objects of the driver's chart.
func selected[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) pager.ListPageFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		o.LabelSelector = ofDriver
		return list(ctx, o)
	}
}

func readPolicies(ctx context.Context, client kubernetes.Interface, c *doctor.Cluster) error {
	admission := client.AdmissionregistrationV1()
	if err := note(c, doctor.Policies, lists.Into(ctx, &c.Policies, selected(admission.ValidatingAdmissionPolicies().List))); err != nil {
		return err
	}
	return note(c, doctor.Bindings, lists.Into(ctx, &c.Bindings, selected(admission.ValidatingAdmissionPolicyBindings().List)))
}

// readTemplates reads the claim templates of all namespaces.
func readTemplates(ctx context.Context, client kubernetes.Interface, c *doctor.Cluster) error {
	if c.Unread[doctor.Slices] != "" {
		return nil // the API server may not serve the group at all
	}
	return note(c, doctor.Templates, lists.Into(ctx, &c.Templates, lists.Of(client.ResourceV1().ResourceClaimTemplates(metav1.NamespaceAll).List)))
}

// ofNodes returns the findings on the nodes, and on objects that are not nodes; all without
// names.
func ofNodes(findings []doctor.Finding, nodes []string) []doctor.Finding {
	return slices.DeleteFunc(findings, func(f doctor.Finding) bool {
		name, isNode := strings.CutPrefix(f.Object, "node ")
		return isNode && len(nodes) > 0 && !slices.Contains(nodes, name)
	})
}

// printFindings prints the findings. Tables have the ones that are not ok, unless all is set, and
// that are not muted. It returns an error if there is a problem.
func (o *options) printFindings(findings []doctor.Finding, all bool) error {
	counts, muted := map[doctor.State]int{}, 0
	shown := []doctor.Finding{}
	for _, f := range findings {
		if f.Muted {
			muted++
			continue
		}
		counts[f.State]++
		if all || f.State != doctor.OK {
			shown = append(shown, f)
		}
	}
	if !o.isTable() {
		return errors.Join(o.printValue(list{rows.HeaderOf("FindingList"), o.partial, findings}), foundProblems(counts))
	}
	t := rows.Table{Heading: []string{"STATE", "CODE", "OBJECT", "FOUND"}}
	for _, g := range alike(shown, row) {
		t.Rows = append(t.Rows, []string{string(g.State), g.Title(), g.Object, g.Found})
	}
	if len(shown) > 0 {
		if err := o.print(nil, t); err != nil {
			return err
		}
	}
	o.printRemedies(shown)
	end := "\n"
	if muted > 0 {
		end = fmt.Sprintf(", muted: %d\n", muted)
	}
	fmt.Fprintf(o.Out, "problems: %d, warnings: %d, unknown: %d, ok: %d%s", counts[doctor.Problem], counts[doctor.Warning], counts[doctor.Unknown], counts[doctor.OK], end) //nolint:errcheck // as above
	return foundProblems(counts)
}

// foundProblems returns an error if there are problems.
func foundProblems(counts map[doctor.State]int) error {
	if n := counts[doctor.Problem]; n > 0 {
		return fmt.Errorf("doctor found problems: %d", n)
	}
	return nil
}

// row returns what distinguishes a finding from others in the table. One list that cannot be read is
// one row, however many checks need it.
func row(f doctor.Finding) doctor.Finding {
	f.Object = ""
	if f.Code != "" {
		f.Check = ""
	}
	return f
}

// printRemedies prints each remedy once, with the codes and the objects that it is for.
func (o *options) printRemedies(findings []doctor.Finding) {
	key := func(f doctor.Finding) doctor.Finding {
		return doctor.Finding{Code: f.Code, Meaning: f.Meaning, Remedy: f.Remedy, Read: f.Read}
	}
	for _, f := range alike(findings, key) {
		if f.Remedy == "" {
			continue
		}
		var checks []string
		for _, other := range findings {
			if key(other) == key(f) && !slices.Contains(checks, other.Check) {
				checks = append(checks, other.Check)
			}
		}
		if len(checks) > 1 {
			f.Object += " (checks " + strings.Join(checks, ", ") + ")"
		}
		//nolint:errcheck // a writer that fails has failed for the table
		fmt.Fprintf(o.Out, "\n%s: %s\n  meaning  %s\n  remedy   %s\n  read     %s\n", f.Title(), plain.Line(f.Object), plain.Line(f.Meaning), plain.Line(f.Remedy), plain.Line(f.Read))
	}
	fmt.Fprintln(o.Out) //nolint:errcheck // as above
}

// alike returns one finding for all that have the same key, with the names of all their
// objects.
func alike(findings []doctor.Finding, key func(doctor.Finding) doctor.Finding) []doctor.Finding {
	var groups []doctor.Finding
	objects := map[doctor.Finding][]string{}
	for _, f := range findings {
		k := key(f)
		if objects[k] == nil {
			groups = append(groups, f)
		}
		if !slices.Contains(objects[k], f.Object) {
			objects[k] = append(objects[k], f.Object)
		}
	}
	for i, f := range groups {
		groups[i].Object = fleet.List(1, objects[key(f)])
	}
	return groups
}

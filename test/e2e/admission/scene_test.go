// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
)

const (
	// manifest is the chart as it is applied by those without helm.
	manifest = "../../../deployments/static/install.yaml"
	// classes are DeviceClasses of an administrator.
	classes = "testdata/classes.yaml"

	// tenant is a namespace like any other, monitoring one with admin access.
	tenant     = "tenant"
	monitoring = "monitoring"
)

// resources are the plurals of the kinds here.
var resources = map[string]string{
	"DeviceClass":                      "deviceclasses",
	"ResourceClaim":                    "resourceclaims",
	"ResourceClaimTemplate":            "resourceclaimtemplates",
	"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	"ResourceQuota":                    "resourcequotas",
	"Namespace":                        "namespaces",
}

// scene is an API server with the chart's policies in force.
type scene struct {
	client dynamic.Interface
	// policies by name.
	policies map[string]*unstructured.Unstructured
	// before are claims and templates that the policies would refuse.
	before []*unstructured.Unstructured
}

// newScene first creates objects that are older than the policies, some of which the
// policies would refuse.
func newScene(ctx context.Context, client dynamic.Interface) (*scene, error) {
	s := &scene{client: client, policies: map[string]*unstructured.Unstructured{}, before: before()}
	earlier, err := read(classes)
	if err != nil {
		return nil, err
	}
	for name, labels := range map[string]map[string]string{tenant: nil, monitoring: {"resource.kubernetes.io/admin-access": "true"}} {
		namespace := object("v1", "Namespace", "", name)
		namespace.SetLabels(labels)
		earlier = append(earlier, namespace)
	}
	installed, err := read(manifest)
	if err != nil {
		return nil, err
	}
	for _, o := range append(earlier, s.before...) {
		if err := s.apply(ctx, o); err != nil {
			return nil, err
		}
	}
	for _, o := range installed {
		switch o.GetKind() {
		case "ValidatingAdmissionPolicy":
			s.policies[o.GetName()] = o
		case "ValidatingAdmissionPolicyBinding", "DeviceClass":
		default:
			continue
		}
		if err := s.apply(ctx, o); err != nil {
			return nil, err
		}
	}
	return s, s.inForce(ctx)
}

// inForce waits until the API server has seen the policies, and the classes as
// their parameters.
func (s *scene) inForce(ctx context.Context) error {
	mislabelled := object("resource.k8s.io/v1", "DeviceClass", "", "mislabelled")
	mislabelled.SetLabels(map[string]string{"gpu.nvidia.com/mislabelled": ""})
	waitFor := []*unstructured.Unstructured{mislabelled, claim(tenant, devices{"config": []any{parameters(map[string]any{})}})}
	for _, class := range []string{"gpu.nvidia.com", "mig.nvidia.com", "mps.nvidia.com", "share.nvidia.com", "timeslice.nvidia.com", "seat.nvidia.com", "monitor.nvidia.com", "limited.example.com", "plain.example.com", "plain-config.example.com", "unlimited-memory.example.com", "unreadable.example.com"} {
		waitFor = append(waitFor, misnamed(class))
	}
	for _, o := range waitFor {
		if err := s.untilRefused(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// misnamed returns a claim that every class with the label gpu.nvidia.com/type
// refuses.
func misnamed(class string) *unstructured.Unstructured {
	return claim(tenant, devices{"requests": []any{map[string]any{"name": "gpu", "exactly": map[string]any{
		"deviceClassName": class, "capacity": map[string]any{"requests": map[string]any{"misnamed": "1"}}}}}})
}

// untilRefused waits until a policy refuses the object.
func (s *scene) untilRefused(ctx context.Context, o *unstructured.Unstructured) error {
	err := harness.Until(ctx, func(ctx context.Context) (bool, string, error) {
		err := s.try(ctx, o)
		if err == nil {
			return false, "it is admitted", nil
		}
		return strings.Contains(err.Error(), "ValidatingAdmissionPolicy"), err.Error(), nil
	})
	if err != nil {
		return fmt.Errorf("wait until %v is refused: %w", o.Object, err)
	}
	return nil
}

// try creates the object in a dry run.
func (s *scene) try(ctx context.Context, o *unstructured.Unstructured) error {
	_, err := s.of(o).Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (s *scene) apply(ctx context.Context, o *unstructured.Unstructured) error {
	_, err := s.of(o).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "admission-test", Force: true})
	if err != nil {
		return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

func (s *scene) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	kind := o.GroupVersionKind()
	resource := s.client.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: resources[kind.Kind]})
	if o.GetNamespace() == "" {
		return resource
	}
	return resource.Namespace(o.GetNamespace())
}

// refusal returns the message of an API server's refusal; empty if err is nil.
func refusal(err error) (string, error) {
	if err == nil {
		return "", nil
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)) {
		return err.Error(), nil
	}
	return "", err
}

// devices is the spec.devices of a claim.
type devices = map[string]any

// claim returns a ResourceClaim.
func claim(namespace string, d devices) *unstructured.Unstructured {
	o := object("resource.k8s.io/v1", "ResourceClaim", namespace, "tried")
	o.Object["spec"] = map[string]any{"devices": d}
	return o
}

// template returns a ResourceClaimTemplate.
func template(namespace string, d devices) *unstructured.Unstructured {
	o := object("resource.k8s.io/v1", "ResourceClaimTemplate", namespace, "tried")
	o.Object["spec"] = map[string]any{"spec": map[string]any{"devices": d}}
	return o
}

// parameters returns an entry of a config.
func parameters(document map[string]any) map[string]any {
	return map[string]any{"opaque": map[string]any{"driver": harness.DriverName, "parameters": document}}
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// read returns the objects of a file in YAML.
func read(file string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		switch err := decoder.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case o.Object != nil:
			objects = append(objects, o)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// pod is a probe pod. claim names a ResourceClaim in its namespace, or is empty;
// limit is an entry of its resource limits, or is empty.
func pod(name, claim, limit string) string {
	var claims, uses, limits string
	if claim != "" {
		claims = fmt.Sprintf("\n  resourceClaims:\n  - name: gpu\n    resourceClaimName: %s", claim)
		uses = "\n      claims:\n      - name: gpu"
	}
	if limit != "" {
		limits = "\n      limits:\n        " + limit
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1%s
  containers:
  - name: main
    image: localhost/gpu-dra-driver/gpu-probe:demo
    imagePullPolicy: IfNotPresent
    resources:%s%s
`, name, claims, uses, limits)
}

// templated is a pod whose claim, of the same name, comes from a template.
func templated(name, claim string) string {
	return template(claim) + strings.Replace(pod(name, name, ""), "resourceClaimName", "resourceClaimTemplateName", 1)
}

// replicas are pods of a ReplicaSet, each with a claim from a template of the same name. spec
// is a line of their spec, or is empty.
func replicas(name string, count int, claim, spec string) string {
	return template(claim) + fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1%[3]s
      resourceClaims: [{name: gpu, resourceClaimTemplateName: %[1]s}]
      containers:
      - name: main
        image: localhost/gpu-dra-driver/gpu-probe:demo
        imagePullPolicy: IfNotPresent
        resources: {claims: [{name: gpu}]}
`, name, count, indent(6, spec))
}

// claim asks for one whole GPU; extra lines go into its request, and config
// into its devices.
func claim(name, request, config string) string {
	return fmt.Sprintf(`
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata:
  name: %s
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: gpu.nvidia.com%s%s
---
`, name, indent(8, request), indent(4, config))
}

// share asks for so much memory of a GPU.
func share(name, memory, config string) string {
	return of("mps.nvidia.com", claim(name, "capacity: {requests: {memory: "+memory+"}}", config))
}

// plainShare is a claim "plain" for 10Gi of a GPU, with the fields of its ShareConfig. It comes
// with its class until the test ends: mps.nvidia.com is for shares that are held to their size.
func plainShare(t *testing.T, fields string) string {
	t.Helper()
	cleared(t, "deviceclass/any-gpu.example.com")
	return gpuClass + of("any-gpu.example.com", claim("plain", "capacity: {requests: {memory: 10Gi}}", config("ShareConfig", fields)))
}

// gpuClass is a class of all GPUs, with no bounds.
const gpuClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: any-gpu.example.com
spec:
  selectors:
  - cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].?type.orValue('') == 'gpu'"}
---
`

func indent(spaces int, text string) string {
	if text == "" {
		return ""
	}
	prefix := "\n" + strings.Repeat(" ", spaces)
	return prefix + strings.ReplaceAll(strings.TrimSpace(text), "\n", prefix)
}

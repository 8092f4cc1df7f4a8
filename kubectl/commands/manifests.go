// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// workload is a number of pods alike.
type workload struct {
	Kind, Namespace, Name string
	Pods                  int
	// EachNode is true for the pods of a DaemonSet: one on each node that admits it.
	EachNode bool
	Template corev1.PodTemplateSpec
}

func (w workload) String() string { return w.Kind + "/" + w.Name }

// manifests are the objects of files that concern devices.
type manifests struct {
	workloads []workload
	templates []*resourceapi.ResourceClaimTemplate
	fleet.Objects
	// namespace is the one of objects without a namespace.
	namespace string
}

// readManifests reads files, the YAML and JSON files of folders, and in for the name "-". It
// ignores objects that concern neither pods nor devices. The error wraps [gpu.ErrInvalid] for
// text that is not a manifest.
func readManifests(names []string, in io.Reader, namespace string) (*manifests, error) {
	m := &manifests{namespace: namespace}
	for _, name := range names {
		if name == "-" {
			if err := m.read(in); err != nil {
				return nil, fmt.Errorf("standard input: %w", err)
			}
			continue
		}
		err := filepath.WalkDir(name, func(path string, entry os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && path != name:
				return filepath.SkipDir
			case entry.IsDir() || path != name && !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				return nil
			}
			file, err := os.Open(path) //nolint:gosec // the user names it
			if err != nil {
				return err
			}
			defer file.Close() //nolint:errcheck // only read
			if err := m.read(file); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *manifests) read(r io.Reader) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := m.add(document); err != nil {
			return err
		}
	}
}

func (m *manifests) add(document []byte) error {
	text, err := yaml.YAMLToJSON(document)
	if err != nil {
		return fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
	}
	if string(text) == "null" {
		return nil
	}
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
	case kind.Group == resourceapi.GroupName && kind.GroupVersion() != resourceapi.SchemeGroupVersion:
		return fmt.Errorf("%s of %s: %w: want %s", kind.Kind, kind.GroupVersion(), gpu.ErrNotSupported, resourceapi.SchemeGroupVersion)
	}
	if list, ok := object.(*corev1.List); ok {
		for _, item := range list.Items {
			if err := m.add(item.Raw); err != nil {
				return err
			}
		}
		return nil
	}
	m.addObject(object)
	return nil
}

func (m *manifests) addObject(object runtime.Object) {
	one := func(kind string, meta metav1.ObjectMeta, pods *int32, template corev1.PodTemplateSpec) {
		n := int32(1)
		if pods != nil {
			n = *pods
		}
		m.workloads = append(m.workloads, workload{Kind: kind, Namespace: cmp.Or(meta.Namespace, m.namespace), Name: meta.Name, Pods: int(n), EachNode: kind == "daemonset", Template: template})
	}
	switch o := object.(type) {
	case *corev1.Pod:
		one("pod", o.ObjectMeta, nil, corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec})
	case *appsv1.Deployment:
		one("deployment", o.ObjectMeta, o.Spec.Replicas, o.Spec.Template)
	case *appsv1.StatefulSet:
		one("statefulset", o.ObjectMeta, o.Spec.Replicas, o.Spec.Template)
	case *appsv1.ReplicaSet:
		one("replicaset", o.ObjectMeta, o.Spec.Replicas, o.Spec.Template)
	case *appsv1.DaemonSet:
		one("daemonset", o.ObjectMeta, nil, o.Spec.Template)
	case *batchv1.Job:
		one("job", o.ObjectMeta, o.Spec.Parallelism, o.Spec.Template)
	case *batchv1.CronJob:
		one("cronjob", o.ObjectMeta, o.Spec.JobTemplate.Spec.Parallelism, o.Spec.JobTemplate.Spec.Template)
	case *resourceapi.ResourceClaim:
		o.Namespace = cmp.Or(o.Namespace, m.namespace)
		setDefaults(&o.Spec)
		m.Claims = append(m.Claims, o)
	case *resourceapi.ResourceClaimTemplate:
		o.Namespace = cmp.Or(o.Namespace, m.namespace)
		setDefaults(&o.Spec.Spec)
		m.templates = append(m.templates, o)
	case *resourceapi.DeviceClass:
		m.Classes = append(m.Classes, o)
	case *resourceapi.ResourceSlice:
		m.Slices = append(m.Slices, o)
	case *corev1.Node:
		m.Nodes = append(m.Nodes, o)
	}
}

// setDefaults sets the defaults that the API server sets in claims.
func setDefaults(spec *resourceapi.ResourceClaimSpec) {
	set := func(mode *resourceapi.DeviceAllocationMode, count *int64) {
		*mode = cmp.Or(*mode, resourceapi.DeviceAllocationModeExactCount)
		if *mode == resourceapi.DeviceAllocationModeExactCount {
			*count = cmp.Or(*count, 1)
		}
	}
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if r.Exactly != nil {
			set(&r.Exactly.AllocationMode, &r.Exactly.Count)
		}
		for j := range r.FirstAvailable {
			set(&r.FirstAvailable[j].AllocationMode, &r.FirstAvailable[j].Count)
		}
	}
}

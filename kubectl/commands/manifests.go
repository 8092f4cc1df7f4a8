// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/kubectl/fleet"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// workload is a number of pods alike.
type workload struct {
	Kind, Namespace, Name string
	// Pods is the number of pods; of a DaemonSet, there is one on each node that admits it.
	Pods int
	Spec corev1.PodSpec
}

func (w workload) String() string { return w.Kind + "/" + w.Name }

// manifests are the objects of files that concern devices.
type manifests struct {
	workloads []workload
	templates []*resourceapi.ResourceClaimTemplate
	claims    []*resourceapi.ResourceClaim
	classes   []*resourceapi.DeviceClass
	// namespace is the one of objects without a namespace.
	namespace string
}

// readManifests reads files, the YAML and JSON files of folders, and in for the name "-". It
// ignores objects that concern neither pods nor devices. The error wraps [gpu.ErrInvalid] for
// text that is not a manifest.
func readManifests(names []string, in io.Reader, namespace string) (*manifests, error) {
	m := &manifests{namespace: namespace}
	for _, name := range names {
		files := []string{name}
		if entries, err := os.ReadDir(name); err == nil {
			files = nil
			for _, entry := range entries {
				if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
					files = append(files, filepath.Join(name, entry.Name()))
				}
			}
		}
		for _, file := range files {
			text, err := []byte(nil), error(nil)
			if file == "-" {
				text, err = io.ReadAll(in)
			} else {
				text, err = os.ReadFile(file) //nolint:gosec // the user names it
			}
			if err == nil {
				err = m.read(text)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return m, nil
}

func (m *manifests) read(text []byte) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = m.add(document)
		}
		if err != nil {
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
	m.addObject(object, strings.ToLower(kind.Kind))
	return nil
}

func (m *manifests) addObject(object runtime.Object, kind string) {
	add := func(meta metav1.ObjectMeta, pods *int32, spec corev1.PodSpec) {
		m.workloads = append(m.workloads, workload{kind, cmp.Or(meta.Namespace, m.namespace), meta.Name, int(ptr.Deref(pods, 1)), spec})
	}
	switch o := object.(type) {
	case *corev1.Pod:
		add(o.ObjectMeta, nil, o.Spec)
	case *appsv1.Deployment:
		add(o.ObjectMeta, o.Spec.Replicas, o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		add(o.ObjectMeta, o.Spec.Replicas, o.Spec.Template.Spec)
	case *appsv1.ReplicaSet:
		add(o.ObjectMeta, o.Spec.Replicas, o.Spec.Template.Spec)
	case *appsv1.DaemonSet:
		add(o.ObjectMeta, nil, o.Spec.Template.Spec)
	case *batchv1.Job:
		add(o.ObjectMeta, atOnce(o.Spec), o.Spec.Template.Spec)
	case *batchv1.CronJob:
		add(o.ObjectMeta, atOnce(o.Spec.JobTemplate.Spec), o.Spec.JobTemplate.Spec.Template.Spec)
	case *resourceapi.ResourceClaim:
		o.Namespace = cmp.Or(o.Namespace, m.namespace)
		setDefaults(&o.Spec)
		m.claims = append(m.claims, o)
	case *resourceapi.ResourceClaimTemplate:
		o.Namespace = cmp.Or(o.Namespace, m.namespace)
		setDefaults(&o.Spec.Spec)
		m.templates = append(m.templates, o)
	case *resourceapi.DeviceClass:
		m.classes = append(m.classes, o)
	}
}

// atOnce returns how many pods of a Job run at a time.
func atOnce(job batchv1.JobSpec) *int32 {
	return ptr.To(min(ptr.Deref(job.Parallelism, 1), ptr.Deref(job.Completions, math.MaxInt32)))
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

// addTemplates reads the claim templates that the pods name and the manifests lack.
func (m *manifests) addTemplates(ctx context.Context, client kubernetes.Interface) error {
	for _, w := range m.workloads {
		for _, entry := range w.Spec.ResourceClaims {
			name := entry.ResourceClaimTemplateName
			if name == nil || m.template(w.Namespace, *name) != nil {
				continue
			}
			template, err := client.ResourceV1().ResourceClaimTemplates(w.Namespace).Get(ctx, *name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return fmt.Errorf("get claim template %s/%s: %w", w.Namespace, *name, err)
			default:
				m.templates = append(m.templates, template)
			}
		}
	}
	return nil
}

func (m *manifests) template(namespace, name string) *resourceapi.ResourceClaimTemplate {
	return fleet.First(m.templates, func(t *resourceapi.ResourceClaimTemplate) bool { return t.Namespace == namespace && t.Name == name })
}

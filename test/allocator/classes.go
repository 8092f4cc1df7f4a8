// SPDX-License-Identifier: Apache-2.0

package allocator

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// ReadClasses reads the DeviceClasses of a manifest, which may hold other objects
// too.
func ReadClasses(file string) ([]*resourceapi.DeviceClass, error) {
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return nil, fmt.Errorf("read the DeviceClasses: %w", err)
	}
	var classes []*resourceapi.DeviceClass
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if meta.Kind != "DeviceClass" {
			continue
		}
		class := &resourceapi.DeviceClass{}
		if err := yaml.UnmarshalStrict([]byte(document), class); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		classes = append(classes, class)
	}
	return classes, nil
}

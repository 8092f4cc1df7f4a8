// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu/kind"
)

// SetCordoned takes the value of the node's [v1alpha1.AnnotationCordoned]. It follows all entries
// that name a GPU, and reports the first other one.
func (i *Inventory) SetCordoned(value string) {
	i.mu.Lock()
	same := value == i.cordoned
	if !same {
		i.cordoned = value
		i.known.cordoned, i.cordonSyntax = parseCordoned(value)
	}
	i.mu.Unlock()
	if !same {
		i.write()
	}
}

// parseCordoned returns the names of GPUs in the annotation. The error wraps [gpu.ErrInvalid].
func parseCordoned(value string) (names []string, err error) {
	for entry := range strings.SplitSeq(value, ",") {
		entry = strings.TrimSpace(entry)
		name, wrong := kind.Parse(entry)
		switch {
		case wrong == nil && name == kind.Whole(name.Address):
			names = append(names, entry)
		case entry != "" && err == nil:
			err = fmt.Errorf("the node's annotation %s: %w entry %q: want names of GPUs, such as gpu-1b-00, with commas", v1alpha1.AnnotationCordoned, gpu.ErrInvalid, entry)
		}
	}
	return names, err
}

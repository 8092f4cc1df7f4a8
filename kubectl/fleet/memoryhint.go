// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpu-dra/gpu-dra-driver/api/gpu/v1alpha1"
)

// reservedPercent is more than the part of a GPU's memory that claims cannot use: the
// driver's reserve and the memory of an MPS server. It is 3 % of a T4 and less of larger
// GPUs.
const reservedPercent = 5

// memoryHint returns the amount to write in a selector that compares a GPU's memory with
// NVML's total. Selectors for NVIDIA's driver do so. It returns "" if the selector does
// not.
func (d Device) memoryHint(expression string) string {
	has := d.capacity(v1alpha1.CapacityMemory)
	if !d.isWhole() || has.IsZero() || !slices.Contains(NamesIn(expression), d.memory()) {
		return ""
	}
	for _, m := range regexp.MustCompile(`quantity\(\s*["']([^"']+)["']\s*\)`).FindAllStringSubmatch(expression, -1) {
		want, err := resource.ParseQuantity(m[1])
		if err != nil || want.Cmp(has) <= 0 || want.Value()/100*(100-reservedPercent) > has.Value() {
			continue
		}
		return fmt.Sprintf(", which is what claims can use of the GPU; write %dGi instead of %s, the total", has.Value()>>30, m[1])
	}
	return ""
}

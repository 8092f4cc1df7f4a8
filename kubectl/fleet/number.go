// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Number returns a number with its noun, such as "1 claim", "2 policies" or "3 classes".
func Number(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(noun, "y"))
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}

// NumberVerb returns a number with its noun and a verb. Examples are "1 device is" and "2 devices
// are".
func NumberVerb(n int, noun, one, many string) string {
	if n == 1 {
		return Number(n, noun) + " " + one
	}
	return Number(n, noun) + " " + many
}

// Age returns the time since a moment in words, such as "12m".
func Age(since, now time.Time) string { return duration.HumanDuration(max(0, now.Sub(since))) }

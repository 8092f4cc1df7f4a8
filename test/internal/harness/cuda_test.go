// SPDX-License-Identifier: Apache-2.0

package harness

import "testing"

func TestAReportIsReadFromALogWithErrors(t *testing.T) {
	const report = "{\n  \"mps\": true\n}\n"
	for name, log := range map[string]string{
		"report only":               report,
		"error first":               "probe: CUDA_ERROR_X (1): why\n" + report,
		"error between the lines":   "{\n  \"mps\": true\nprobe: CUDA_ERROR_X (1): why\n}\n",
		"error without end of line": report + "probe: CUDA",
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(withoutErrors([]byte(log))); got != report {
				t.Errorf("got %q, want %q", got, report)
			}
		})
	}
}

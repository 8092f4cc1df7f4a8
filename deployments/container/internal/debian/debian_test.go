// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheTermsAndTheRecordOfAPackageGoTogether(t *testing.T) {
	// By a name of the file that the package itself may not use.
	for _, file := range []string{"/lib/os-release", System{}.OSRelease()} {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		files, err := System{}.Files(t.Context(), file, file)
		if err != nil {
			t.Fatal(err)
		}
		if len(files["usr/share/doc/base-files/copyright"].Content) == 0 {
			t.Errorf("%s: no terms", file)
		}
		if record := string(files["var/lib/dpkg/status.d/base-files"].Content); !strings.Contains(record, "Package: base-files\n") || !strings.Contains(record, "\nVersion: ") {
			t.Errorf("%s: record %q", file, record)
		}
	}
}

func TestAFileOfNoPackageIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "libmine.so")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (System{}).Files(t.Context(), file); err == nil || !strings.Contains(err.Error(), "libmine.so is of no Debian package") {
		t.Errorf("error %v", err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Helm 3 names the digest on stderr, and Helm 4 on stdout.
const fakeHelm = `#!/bin/sh
[ "$*" = "push .build/release/v1.2.3/gpu-dra-driver-1.2.3.tgz oci://registry.example.com/team/charts" ] || exit 1
printf 'Pushed: registry.example.com/team/charts/gpu-dra-driver:1.2.3\nDigest: %s\n' "$CHART_DIGEST" >&$HELM_STREAM
`

// fakeDocker writes the file that bake writes for the images of docker-bake.hcl.
const fakeDocker = `#!/bin/sh
[ "$2" = bake ] || exit 0
while [ "$1" != --metadata-file ]; do shift; done
separator={
for image in $IMAGES; do
  printf '%s"%s": {"image.name": "%s/%s:%s", "containerimage.digest": "sha256:of-%s"}' "$separator" $image $PREFIX $image $VERSION $image
  separator=,
done >$2
echo } >>$2
`

const fakeCosign = `#!/bin/sh
echo "$*" >>$SIGNED
`

// fakeJQ is for a machine without jq. Only the expression of publish.sh is not tested with it.
const fakeJQ = `#!/bin/sh
for image in $IMAGES; do echo "registry.example.com/team/$image@sha256:of-$image"; done
`

// TestPublishSignsWhatTheDocumentVerifies runs publish.sh with programs that reach no registry.
func TestPublishSignsWhatTheDocumentVerifies(t *testing.T) {
	loop := regexp.MustCompile(`(?m)^for name in (.*); do\n  cosign verify `).FindStringSubmatch(read(t, "docs/admin/install-from-registry.md"))
	if loop == nil {
		t.Fatal("the document verifies no images")
	}
	digest := "sha256:" + strings.Repeat("0c", 32)
	var images, want []string
	for _, name := range strings.Fields(loop[1]) {
		name, _, _ = strings.Cut(name, ":")
		if name == "charts/gpu-dra-driver" {
			want = append(want, "sign --yes registry.example.com/team/"+name+"@"+digest)
			continue
		}
		images = append(images, name)
		want = append(want, "sign --yes registry.example.com/team/"+name+"@sha256:of-"+name)
	}
	want = append(want, "sign-blob --yes --bundle .build/release/v1.2.3/SHA256SUMS.sigstore.json .build/release/v1.2.3/SHA256SUMS")
	for stream, digest := range map[string]string{"1": digest, "2": digest, "1 without a digest": ""} {
		dir := t.TempDir()
		script, signed := filepath.Join(dir, "deployments/container/publish.sh"), filepath.Join(dir, "signed")
		programs := map[string]string{
			script: read(t, "deployments/container/publish.sh"), filepath.Join(dir, ".build/kept"): "", signed: "",
			filepath.Join(dir, "bin/helm"): fakeHelm, filepath.Join(dir, "bin/docker"): fakeDocker, filepath.Join(dir, "bin/cosign"): fakeCosign,
		}
		if _, err := exec.LookPath("jq"); err != nil {
			programs[filepath.Join(dir, "bin/jq")] = fakeJQ
		}
		for path, text := range programs {
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must(t, os.WriteFile(path, []byte(text), 0o700))
		}
		cmd := exec.CommandContext(t.Context(), script, "v1.2.3", "registry.example.com/team")
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "SIGNED="+signed,
			"IMAGES="+strings.Join(images, " "), "CHART_DIGEST="+digest, "HELM_STREAM="+stream[:1])
		out, err := cmd.CombinedOutput()
		text, readErr := os.ReadFile(signed)
		must(t, readErr)
		got := strings.Split(strings.TrimSpace(string(text)), "\n")
		if digest == "" {
			if err == nil || len(text) > 0 {
				t.Errorf("helm names no digest: %v, signed %q", err, got)
			}
			continue
		}
		if err != nil {
			t.Errorf("helm on stream %s: %v\n%s", stream, err, out)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))); diff != "" {
			t.Errorf("helm on stream %s: signed (-want +got):\n%s", stream, diff)
		}
	}
}

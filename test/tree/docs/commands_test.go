// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
)

func TestEveryFenceNamesItsLanguage(t *testing.T) {
	// The README of the simulator has commands with their output.
	known := []string{markdown.Commands, "yaml", "text", "console", "go"}
	for _, f := range fences(t) {
		if !slices.Contains(known, f.Language) {
			t.Errorf("%s: the language of the fence is %q, want one of %q; text is for output and figures", f.Where(), f.Language, known)
		}
	}
}

// A command that no test runs is listed here and has its reason in the document.
func TestListOfCommandsThatNoTestRuns(t *testing.T) {
	want := []string{
		"README.md: make demo    # as root on Linux: a real one-node Kubernetes with a simulated DGX H100, seven pods on it, and the GPU of each",
		"demo/compare-sharing/README.md: export NODE_NAME=gpu-node    # yours",
		"demo/compare-sharing/README.md: kubectl apply --filename demo/compare-sharing/claims.yaml",
		"demo/compare-sharing/README.md: demo/compare-sharing/dgds.sh whole-gpu | kubectl delete --filename -",
		"demo/course/README.md: make demo STORY=course",
		"demo/kueue/README.md: KUEUE=kueue-0.19.1.tgz    # the chart",
		"deployments/container/README.md: docker buildx bake --file deployments/container/docker-bake.hcl --set '*.platform=linux/amd64' --load",
		"deployments/container/README.md: docker load --input .build/images/gpu-kubelet-plugin.tar    # or podman, or nerdctl",
		"docs/admin/ai-conformance.md: git clone https://github.com/kubernetes-sigs/ai-conformance",
		`docs/admin/device-plugin-differences.md: kubectl wait --for=jsonpath='{.metadata.labels.nvidia\.com/mig\.config\.state}'=success --timeout=15m node/$NODE`,
		"docs/admin/install-from-registry.md: IDENTITY=https://github.com/gpu-dra/gpu-dra-driver/.github/workflows/release.yml@refs/tags/v0.1.0",
		"docs/admin/install-from-registry.md: cosign verify-blob --bundle SHA256SUMS.sigstore.json --certificate-identity $IDENTITY --certificate-oidc-issuer $ISSUER SHA256SUMS",
		`docs/admin/install-from-registry.md: docker buildx imagetools inspect $REGISTRY/gpu-kubelet-plugin:v0.1.0 --format '{{json .SBOM}}'`,
		`docs/admin/install-from-registry.md: for archive in $TRANSFER/*.tar; do`,
		`docs/admin/platforms.md: helm upgrade --install gpu-operator nvidia/gpu-operator --namespace gpu-operator --create-namespace \`,
		`docs/admin/platforms.md: kubectl --namespace gpu-operator delete pod --selector app=nvidia-driver-daemonset --field-selector spec.nodeName=$NODE`,
		`docs/admin/platforms.md: oc debug node/$NODE -- chroot /host ausearch --message AVC --start recent`,
		`docs/admin/platforms.md: find / -xdev -name libnvidia-ml.so.1 -or -xdev -name nvidia-smi`,
		`docs/admin/platforms.md: gcloud container node-pools create gpus --cluster=$CLUSTER --location=$LOCATION \`,
		`docs/admin/platforms.md: kubectl get nodes --output custom-columns=NODE:.metadata.name,PLUGIN:'.status.allocatable.nvidia\.com/gpu'`,
		`docs/admin/programs.md: kubectl get resourceclaims --output custom-columns=CLAIM:.metadata.name,DEVICE:'.status.allocation.devices.results[*].device',CAPACITY:'.status.allocation.devices.results[*].consumedCapacity'`,
		"docs/admin/support.md: nvidia-smi --query-supported-clocks=graphics --format=csv",
		"docs/admin/support.md: nvidia-smi --query-gpu=uuid,driver_version,clocks.sm,clocks.max.sm,power.draw,power.limit,ecc.mode.current,persistence_mode --format=csv",
		"docs/dev/first-change.md: go work init . ./simulator ./test/chart ./test/cluster",
		"docs/dev/hardware.md: cat gpu-node.tar.xz.* | tar xJ",
		"docs/dev/hardware.md: ./gpu-conformance -test.v -hardware=nvml -capture my-node.yaml",
		"docs/dev/hardware.md: sudo ./gpu-conformance record --output my-machine.yaml",
		"docs/dev/simulator.md: .build/bin/cluster --kubernetes=1.36 up",
		"docs/dev/simulator.md: .build/bin/cluster up --container-runtime=cri-o",
		"docs/dev/tests.md: git worktree add --detach /tmp/before main~1",
		"docs/user/look.md: kubectl gpu ui",
		"docs/user/programs.md: echo 'import torch; print([n >> 20 for n in torch.cuda.mem_get_info()])' | kubectl exec --stdin --namespace demo deployment/vllm -- python3",
		"docs/user/programs.md: kubectl logs --namespace demo notebook",
		"docs/user/programs.md: helm repo add kuberay https://ray-project.github.io/kuberay-helm/",
	}
	var got []string
	for _, f := range fences(t) {
		if f.NotRun != "" {
			got = append(got, f.File+": "+f.Lines[0])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("not run by a test (-want +got):\n%s", diff)
	}
}

var (
	placeholder = regexp.MustCompile(`<[a-z][a-z -]*>|…|\.\.\.$|^\$ `)
	shortOption = regexp.MustCompile(` -[A-Za-z]( |$)`)
)

func TestCommandsCanBePasted(t *testing.T) {
	for _, f := range fences(t) {
		if f.Language != markdown.Commands {
			continue
		}
		if len(f.Lines) == 0 {
			t.Errorf("%s: no commands", f.Where())
		}
		for _, line := range f.Lines {
			if found := placeholder.FindString(line); found != "" {
				t.Errorf("%s: %q is for a reader to fill in: let a variable stand for it, which is set in a line of its own: %s", f.Where(), found, line)
			}
			// The daemon of MPS has no long ones.
			if shortOption.MatchString(line) && !strings.Contains(line, "nvidia-cuda-mps-control -d") {
				t.Errorf("%s: long options say what they mean: %s", f.Where(), line)
			}
		}
		bash := exec.CommandContext(t.Context(), "bash", "-n")
		bash.Stdin = strings.NewReader(markdown.Script([]markdown.Fence{f}))
		if out, err := bash.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", f.Where(), err, out)
		}
	}
}

// Only commands in fences are run by a test.
func TestCommandsInTheTextAreInAFenceToo(t *testing.T) {
	var run strings.Builder
	for _, f := range fences(t) {
		if f.Language == markdown.Commands {
			run.WriteString(strings.Join(f.Lines, "\n"))
		}
	}
	command := regexp.MustCompile("`((?:kubectl|helm|ctr|crane|gpu-sim) [^`]* -[^`]*)`")
	for _, doc := range documents(t) {
		for _, m := range command.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, doc), ""), -1) {
			if text := strings.Join(strings.Fields(m[1]), " "); !strings.Contains(run.String(), text) {
				t.Errorf("%s: no fence has the command `%s`", doc, text)
			}
		}
	}
}

// fences of all documents.
func fences(t *testing.T) []markdown.Fence {
	t.Helper()
	var all []markdown.Fence
	for _, doc := range documents(t) {
		found, err := markdown.Read(root, doc)
		if err != nil {
			t.Error(err)
		}
		all = append(all, found...)
	}
	if len(all) < 50 {
		t.Errorf("%d fences in all documents", len(all))
	}
	return all
}

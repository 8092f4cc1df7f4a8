// SPDX-License-Identifier: Apache-2.0

package walkthrough

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-dra/gpu-dra-driver/test/internal/harness"
	"github.com/gpu-dra/gpu-dra-driver/test/internal/markdown"
)

const (
	// model of the hardware on which a reader installs the driver.
	model = "dgx-h100"
	// example is the registry of the documents.
	example = "registry.example.com"
	// crane is the tool with which the documents push images.
	crane = "github.com/google/go-containerregistry/cmd/crane@v0.22.1"
)

// reader runs the commands of documents.
type reader struct {
	cluster *harness.Cluster
	dir     string
	// registry is the reader's own, with which they replace the example.
	registry string
	close    func()
}

// newReader equips a reader, who keeps things in a folder.
func newReader(ctx context.Context, c *harness.Cluster, dir string) (*reader, error) {
	values, err := c.NewAgent(model).Values()
	if err != nil {
		return nil, err
	}
	r := &reader{cluster: c, dir: dir}
	if err := os.WriteFile(r.path("values.yaml"), values, 0o600); err != nil {
		return nil, err
	}
	install := exec.CommandContext(ctx, "go", "install", crane)
	install.Env = append(os.Environ(), "GOBIN="+r.path("bin"))
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go install %s: %w: %s", crane, err, out)
	}
	return r, r.serve(ctx)
}

func (r *reader) path(elem ...string) string {
	return filepath.Join(append([]string{r.dir}, elem...)...)
}

// serve runs a registry until close.
func (r *reader) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, r.path("bin", "crane"), "registry", "serve", "--address", "127.0.0.1:0")
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		stop()
		return fmt.Errorf("serve a registry: %w", err)
	}
	drained := make(chan struct{})
	r.close = func() {
		stop()
		<-drained
		_ = cmd.Wait() // it was killed
	}
	said := bufio.NewReader(pipe)
	line, err := said.ReadString('\n')
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, said)
	}()
	port := regexp.MustCompile(`port (\d+)`).FindStringSubmatch(line)
	if port == nil {
		r.close()
		return errors.Join(fmt.Errorf("serve a registry: it says nothing of a port: %s", line), err)
	}
	r.registry = "127.0.0.1:" + port[1]
	return r.share()
}

// share makes the registry reachable for the node, at the same address.
func (r *reader) share() error {
	listener, err := r.cluster.ListenOnLoopback(r.registry)
	if err != nil {
		r.close()
		return fmt.Errorf("serve the registry on the node: %w", err)
	}
	server := &http.Server{
		Handler:           httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.registry}),
		ReadHeaderTimeout: time.Minute,
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until Close
	}()
	end := r.close
	r.close = func() {
		_ = server.Close() // no request is worth waiting for
		<-served
		end()
	}
	return nil
}

// own is the registry with which the reader of a document replaces the example.
// Each document has a part of it, and finds nothing that another has left.
func (r *reader) own(file string) string {
	return r.registry + "/" + strings.ToLower(strings.NewReplacer("/", "-", ".md", "").Replace(file))
}

// run runs the commands of fences in one shell and returns their output. The output
// goes to progress as well. The error begins with the line of the document whose
// command failed.
func (r *reader) run(ctx context.Context, file string, fences []markdown.Fence, progress io.Writer) (string, error) {
	script := strings.ReplaceAll(markdown.Script(fences), example, r.own(file))
	path := r.path("scripts", file) // bash names it in its messages
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		return "", err
	}
	temporary, err := os.MkdirTemp(r.dir, "tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary) //nolint:errcheck // a folder of our own
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "bash", path)
	cmd.Dir, cmd.Env = r.cluster.Root, r.environment(file, temporary)
	cmd.Stdout = io.MultiWriter(&out, progress)
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	group := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = group
	// Processes in the background keep the output open.
	cmd.WaitDelay = 10 * time.Second
	err = cmd.Run()
	if cmd.Process != nil {
		_ = group() // usually no process is left
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", failedLine(file, out.String()), err, lastFence(out.String()))
	}
	return out.String(), nil
}

// environment of the shell of a document's reader.
func (r *reader) environment(file, temporary string) []string {
	// The make that runs this test is not the reader's.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains([]string{"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "BASH_ENV", "GPU_SIM_STATE"}, name)
	})
	path := []string{filepath.Join(r.cluster.Root, "test/e2e/walkthrough/bin"), r.path("bin"), r.cluster.BinDir, os.Getenv("PATH")}
	return append(env,
		"PATH="+strings.Join(path, ":"),
		"TMPDIR="+temporary,
		"KUBECONFIG="+r.cluster.Kubeconfig,
		"KUBECACHEDIR="+r.path("kubectl"),
		"HELM_CACHE_HOME="+r.path("helm"), "HELM_CONFIG_HOME="+r.path("helm"), "HELM_DATA_HOME="+r.path("helm"),
		// Of the targets that bring a cluster up, the demos.
		"CLUSTER="+r.cluster.Name,
		"WALKTHROUGH_VALUES="+r.path("values.yaml"),
		"WALKTHROUGH_REGISTRY="+r.own(file)+"/team",
		"WALKTHROUGH_HELM="+filepath.Join(r.cluster.Bin, "helm"),
		"WALKTHROUGH_KUBECTL_GPU="+r.cluster.Program("kubectl-gpu"),
		"WALKTHROUGH_CTR="+filepath.Join(r.cluster.BinDir, "ctr"),
		"WALKTHROUGH_CONTAINERD="+r.cluster.ContainerdSocket,
	)
}

// failedLine returns "docs/admin/install.md:28", or the document if bash printed no line.
func failedLine(file, out string) string {
	found := regexp.MustCompile(regexp.QuoteMeta(file)+`:(?: line )?(\d+): `).FindAllStringSubmatch(out, -1)
	if found == nil {
		return file
	}
	return file + ":" + found[len(found)-1][1]
}

// lastFence returns the output of the last fence.
func lastFence(out string) string {
	return out[max(0, strings.LastIndex(out, "### ")):]
}

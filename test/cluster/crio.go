// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
)

// crioPrograms are programs of Debian that CRI-O and its images need. Each is in the package
// of its name.
func crioPrograms() []string { return []string{"conmon", "skopeo"} }

// containerRuntime returns the component that is the container runtime. A cluster with CRI-O
// has a configuration of CRI-O.
func (l Layout) containerRuntime() string {
	if _, err := os.Stat(l.crioConfig()); err == nil {
		return crio
	}
	return containerd
}

func (l Layout) crioConfig() string     { return filepath.Join(l.configDir(), "crio.conf") }
func (l Layout) crioRuntime() string    { return filepath.Join(l.configDir(), "oci-runtime.sh") }
func (l Layout) imagePolicy() string    { return filepath.Join(l.configDir(), "policy.json") }
func (l Layout) crioSocket() string     { return l.path("crio.sock") }
func (l Layout) crioStorage() string    { return l.path("crio", "storage") }
func (l Layout) crioRunStorage() string { return l.path("crio", "run") }

// renderCRIO returns CRI-O's files and its socket.
func renderCRIO(l Layout, p programs) (files map[string][]byte, socket string, err error) {
	runtime, err := renderTemplate("oci-runtime.sh", map[string]string{"Adapter": l.binary("oci-runtime"), "Runtime": p.runc})
	if err != nil {
		return nil, "", err
	}
	config, err := renderTemplate("crio.conf", map[string]string{
		"Storage":    l.crioStorage(),
		"RunStorage": l.crioRunStorage(),
		"State":      l.path("crio"),
		"Socket":     l.crioSocket(),
		"Attach":     l.path("s"),
		"PauseImage": pauseImage,
		"Policy":     l.imagePolicy(),
		"CDIDir":     l.CDIDir(),
		"Runtime":    l.crioRuntime(),
		"Conmon":     p.conmon,
		"Pinns":      l.binary("pinns"),
		"Path":       "PATH=" + host.Path(),
		"Bin":        l.Bin,
		"CNIConf":    l.cniDir(),
		"Logs":       l.LogsDir(),
	})
	return map[string][]byte{
		l.crioConfig():  config,
		l.crioRuntime(): runtime,
		l.imagePolicy(): []byte(`{"default": [{"type": "insecureAcceptAnything"}]}` + "\n"),
	}, l.crioSocket(), err
}

// answers returns an error until a process accepts connections at a socket.
func answers(ctx context.Context, socket string) error {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return connection.Close()
}

// skopeoState is the folder of images of root. The images of a cluster are not there.
const skopeoState = "/var/lib/containers"

// loadWithSkopeo copies each reference of an archive into CRI-O's storage. CRI-O itself only
// pulls from registries.
func loadWithSkopeo(ctx context.Context, l Layout, archive string) error {
	// It keeps a cache in a folder that it has no flag for.
	if _, err := os.Stat(skopeoState); errors.Is(err, fs.ErrNotExist) {
		defer os.RemoveAll(skopeoState) //nolint:errcheck // no image is there
	}
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
	if err != nil {
		return fmt.Errorf("load image %s: %w", archive, err)
	}
	for _, image := range manifest {
		for _, tag := range image.RepoTags {
			to := fmt.Sprintf("containers-storage:[overlay@%s+%s]%s", l.crioStorage(), l.crioRunStorage(), tag)
			if _, err := host.Run(ctx, "skopeo", "--policy", l.imagePolicy(), "copy", "docker-archive:"+archive+":"+tag, to); err != nil {
				return fmt.Errorf("load image %s: %w", archive, err)
			}
		}
	}
	return nil
}

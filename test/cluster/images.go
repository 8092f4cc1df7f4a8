// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/host"
	"github.com/gpu-dra/gpu-dra-driver/test/cluster/internal/image"
)

// buildImages writes the archives of the pause and probe images into dir and returns
// their paths. The binaries must have been built.
func buildImages(ctx context.Context, l Layout, dir string) ([]string, error) {
	busybox, err := host.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("build images: %w", err)
	}
	pause, err := image.Program(l.binary("pause"), withoutRights)
	if err != nil {
		return nil, err
	}
	applets, err := host.Run(ctx, busybox, "--list")
	if err != nil {
		return nil, fmt.Errorf("build images: %w", err)
	}
	probe, err := image.Probe(l.binary("probe"), busybox, strings.Fields(applets))
	if err != nil {
		return nil, err
	}
	pauseArchive, probeArchive := filepath.Join(dir, "pause.tar"), filepath.Join(dir, "probe.tar")
	if err := image.Write(pauseArchive, pauseImage, pause); err != nil {
		return nil, err
	}
	if err := image.Write(probeArchive, probeImage, probe); err != nil {
		return nil, err
	}
	return []string{pauseArchive, probeArchive}, nil
}

// LoadImage imports an archive, as "docker save" or an OCI tool writes it,
// into the cluster.
func LoadImage(ctx context.Context, l Layout, archive string) error {
	if l.containerRuntime() == crio {
		return loadWithSkopeo(ctx, l, archive)
	}
	if _, err := l.ctr(ctx, "images", "import", archive); err != nil {
		return fmt.Errorf("load image %s: %w", archive, err)
	}
	return nil
}

// withoutRights is a user and a group that own no file.
const withoutRights = "65535:65535"

// LoadProgram imports a static program as an image with that reference into the cluster.
// The image has nothing else. It runs as root, or as a user without rights.
func LoadProgram(ctx context.Context, l Layout, program, reference string, root bool) error {
	user := withoutRights
	if root {
		user = "0:0"
	}
	img, err := image.Program(program, user)
	if err != nil {
		return fmt.Errorf("load program %s: %w", program, err)
	}
	dir, err := os.MkdirTemp("", "load-program-")
	if err != nil {
		return fmt.Errorf("load program %s: %w", program, err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a folder of our own
	archive := filepath.Join(dir, "image.tar")
	if err := image.Write(archive, reference, img); err != nil {
		return err
	}
	return LoadImage(ctx, l, archive)
}

// ctr runs containerd's client in the namespace of Kubernetes' containers.
func (l Layout) ctr(ctx context.Context, args ...string) (string, error) {
	return host.Run(ctx, l.binary("ctr"), append([]string{"--address", l.ContainerdSocket(), "--namespace", "k8s.io"}, args...)...)
}

// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// dialPatience is the timeout of connecting to a socket. A socket without a listener
// refuses the connection at once.
const dialPatience = time.Second

// RemoveLeftovers removes the files that killed agents of the driver left in the
// directories of a place:
//
//   - sockets without a listener. Each pod has its own socket names, so no later agent
//     replaces them, and the kubelet keeps dialing the sockets in its registry. Other
//     kinds of files stay.
//   - temporary files of metadata files and of their CDI specs.
//
// No other agent of the driver may run meanwhile: its socket can refuse connections
// for a moment, and its temporary files may be in use.
func RemoveLeftovers(ctx context.Context, p Place) error {
	var errs []error
	remove := func(pattern string, isLeft func(path string) bool) {
		found, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, path := range found {
			if isLeft(path) {
				errs = append(errs, os.Remove(path))
			}
		}
	}
	for _, pattern := range p.socketPatterns() {
		remove(pattern, func(path string) bool { return isDead(ctx, path) })
	}
	for _, pattern := range []string{p.specPattern(), p.filePattern()} {
		remove(pattern+metadataTemporary, func(string) bool { return true })
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove what agents that were killed have left: %w", err)
	}
	return nil
}

// socketPatterns returns [filepath.Glob] patterns for the sockets of the driver's agents in
// pods. They do not match the sockets of NVIDIA's own driver, which have whole UIDs in
// their names.
func (p Place) socketPatterns() []string {
	return []string{filepath.Join(p.DataDir, "dra-"+podPattern()+".sock"), filepath.Join(p.RegistryDir, p.DriverName+"-"+podPattern()+"-reg.sock")}
}

// podPattern returns a [filepath.Match] pattern for the [Instance] of a pod.
func podPattern() string { return strings.Repeat("[0-9a-f]", 8) }

func isDead(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	dialer := net.Dialer{Timeout: dialPatience}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close() // nothing was written
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

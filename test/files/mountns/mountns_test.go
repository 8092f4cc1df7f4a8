// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mountns_test

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/test/files/mountns"
)

func TestMain(m *testing.M) {
	mountns.Enter()
	os.Exit(m.Run())
}

// A recursive bind that is detached takes the originals with it if both are shared.
func TestMountsStayOffAMachineWithSharedMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to mount takes root")
	}
	const mark = "TEST_AS_A_MACHINE"
	if os.Getenv(mark) == "" {
		const machine = `
mount --make-rshared / && mount -t tmpfs machine "$1" && mkdir "$1/below" && mount -t tmpfs machine "$1/below" || exit 1
before=$(cut -d " " -f 5 /proc/self/mountinfo)
"$0" -test.run "^TestMountsStayOffAMachineWithSharedMounts$" || exit 1
after=$(cut -d " " -f 5 /proc/self/mountinfo)
[ "$before" = "$after" ] || { printf "mounts before:\n%s\nmounts after:\n%s\n" "$before" "$after"; exit 1; }`
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "env", "--unset=TEST_MOUNT_NAMESPACE", mark+"="+dir, "sh", "-c", machine, os.Args[0], dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	copied := t.TempDir()
	if err := unix.Mount(os.Getenv(mark), copied, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(copied, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
}

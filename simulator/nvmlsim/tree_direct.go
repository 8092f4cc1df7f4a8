// SPDX-License-Identifier: Apache-2.0

package nvmlsim

// Character device majors of the kernel modules of GPUDirect. The one of RDMA is
// fixed; the kernel chooses the others at run time.
const (
	majorFS   = 507
	majorGDR  = 508
	majorRDMA = 231
)

// direct makes the files of GPUDirect: the device nodes of the kernel modules nvidia-fs,
// gdrdrv and of RDMA, and the configuration of GPUDirect Storage.
func (t tree) direct() error {
	for _, n := range []struct {
		name         string
		major, minor int
	}{
		{"nvidia-fs0", majorFS, 0},
		{"nvidia-fs1", majorFS, 1},
		{"gdrdrv", majorGDR, 0},
		{"infiniband/uverbs0", majorRDMA, 192},
		// The kernel's own is a device of the major misc. That number could be one of
		// another device of the machine.
		{"infiniband/rdma_cm", majorRDMA, 255},
	} {
		if err := t.device("dev/"+n.name, n.major, n.minor); err != nil {
			return err
		}
	}
	if err := t.mkdir("run/udev"); err != nil {
		return err
	}
	return t.write("etc/cufile.json", "{}\n")
}

// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpu-dra/gpu-dra-driver/simulator/cgroup"
	"github.com/gpu-dra/gpu-dra-driver/simulator/mpssim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/nvmlsim"
	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
	"github.com/gpu-dra/gpu-dra-driver/test/gpu/cuda"
)

// This binary is also the clients of MPS, each a separate process with the
// environment of a container.

const (
	// clientVariable makes it one: clientOfCUDA or clientOfStandIn.
	clientVariable  = "CONFORMANCE_CLIENT"
	clientOfCUDA    = "cuda"
	clientOfStandIn = "stand-in"
	// clientOfSimulator is one that computes without MPS on simulated hardware, whose
	// folder stateVariable names.
	clientOfSimulator = "simulator"
	stateVariable     = "CONFORMANCE_STATE"
	// stepVariable and mostVariable are its step and its maximum of allocated memory, in bytes.
	stepVariable = "CONFORMANCE_STEP"
	mostVariable = "CONFORMANCE_MOST"
	// shmVariable is the file system that it has as /dev/shm.
	shmVariable = "CONFORMANCE_SHM"
	hostShm     = "/dev/shm"
	// multiprocessorsVariable is how many multiprocessors the GPU has, for a client of
	// the stand-in, which knows percentages only.
	multiprocessorsVariable = "CONFORMANCE_MULTIPROCESSORS"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(clientVariable); kind != "" {
		if err := beClient(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "record" {
		if err := recordCommand(context.Background(), os.Args[2:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(withGPUSim(m.Run))
}

// gpuSim is the path of gpu-sim, which is the programs of simulated drivers. It is empty
// on a machine with a GPU.
var gpuSim = os.Getenv("GPU_SIM")

// withGPUSim runs the tests with a gpu-sim. It uses the one that GPU_SIM names or the one in
// the folder of this binary, or builds one.
func withGPUSim(run func() int) int {
	if gpuSim != "" {
		return run()
	}
	sibling := filepath.Join(filepath.Dir(os.Args[0]), "gpu-sim")
	if _, err := os.Stat(sibling); err == nil {
		gpuSim = sibling
		return run()
	}
	if *hardware == "nvml" {
		return run()
	}
	dir, err := os.MkdirTemp("", "gpu-sim-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	gpuSim = filepath.Join(dir, "gpu-sim")
	if out, err := exec.Command("go", "build", "-o", gpuSim, "github.com/gpu-dra/gpu-dra-driver/simulator/cmd/gpu-sim").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "no gpu-sim in the folder of this binary, and it cannot be built: %v\n%s", err, out)
		return 1
	}
	return run()
}

// beClient prints what a client gets.
func beClient(kind string) error {
	// The parent has given this process its own mounts.
	if shm := os.Getenv(shmVariable); shm != "" {
		if err := unix.Mount(shm, hostShm, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", shm, hostShm, err)
		}
	}
	look := cuda.Look
	switch kind {
	case clientOfStandIn:
		look = lookAtStandIn
	case clientOfSimulator:
		look = lookAtSimulator
	}
	step, stepErr := strconv.ParseUint(os.Getenv(stepVariable), 10, 64)
	most, mostErr := strconv.ParseUint(os.Getenv(mostVariable), 10, 64)
	if err := errors.Join(stepErr, mostErr); err != nil {
		return err
	}
	report, err := look(step, most)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// lookAtStandIn does as [cuda.Look], in the protocol of the stand-in.
func lookAtStandIn(step, most uint64) (report cuda.Report, err error) {
	conn, err := net.Dial("unix", filepath.Join(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "control"))
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	encoder, decoder := json.NewEncoder(conn), json.NewDecoder(conn)
	ask := func(r mpssim.Request) (reply mpssim.Reply, err error) {
		if err := encoder.Encode(r); err != nil {
			return reply, err
		}
		err = decoder.Decode(&reply)
		return reply, err
	}

	reply, err := ask(mpssim.Request{
		Op:                     "connect",
		ActiveThreadPercentage: os.Getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
		PinnedDeviceMemLimit:   os.Getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"),
	})
	if err != nil || reply.Error != nil || reply.Server == 0 {
		return report, fmt.Errorf("connect: %w: %+v", err, reply)
	}
	token, err := os.ReadFile(filepath.Join(hostShm, reply.Shm))
	if err != nil {
		return report, err
	}
	if reply, err = ask(mpssim.Request{Op: "attach", Token: string(token)}); err != nil || reply.Client == nil {
		return report, fmt.Errorf("attach: %w: %+v", err, reply)
	}
	device := reply.Client.Devices[0]
	report.Name, report.TotalBytes, report.FreeBytes = device.Name, device.MemoryBytes, device.LimitBytes
	if all, err := strconv.Atoi(os.Getenv(multiprocessorsVariable)); err == nil {
		report.Multiprocessors = int(float64(all) * reply.Client.ActiveThreadPercentage / 100)
	}
	for report.TakenBytes+step <= most {
		if reply, err = ask(mpssim.Request{Op: "alloc", Bytes: step}); err != nil {
			return report, err
		}
		if reply.Error != nil {
			report.Refusal = reply.Error.Code
			break
		}
		report.TakenBytes += step
	}
	return report, nil
}

// lookAtSimulator does as [cuda.Look] without MPS, on simulated hardware.
func lookAtSimulator(step, most uint64) (report cuda.Report, err error) {
	sim, err := nvmlsim.Open(os.Getenv(stateVariable))
	if err != nil {
		return report, err
	}
	uuid := os.Getenv("CUDA_VISIBLE_DEVICES")
	index, err := sim.FindGPU(uuid)
	if err != nil {
		return report, err
	}
	p := nvmlsim.Process{PID: os.Getpid(), MemoryBytes: step}
	if p.Cgroups, err = cgroup.Ancestry(p.PID); err != nil {
		return report, err
	}
	if report.TotalBytes, report.FreeBytes, err = sim.MemoryInfo(p.PID, uuid); err != nil {
		return report, err
	}
	for report.TakenBytes+step <= most && report.Refusal == 0 {
		err := sim.AddProcess(index, p)
		switch {
		case errors.Is(err, simerr.ErrNoCapacity):
			report.Refusal = mpsOutOfMemory
		case err != nil:
			return report, err
		default:
			report.TakenBytes += step
		}
	}
	return report, sim.RemoveProcess(p.PID)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
)

const (
	// defaultPipeDirectory is CUDA's default directory for MPS.
	defaultPipeDirectory = "/tmp/nvidia-mps"
	// driverSocket is where the simulated driver serves processes without MPS.
	driverSocket = "/run/nvidia-persistenced/socket"
)

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// The steps of a greedy process.
const (
	firstStep = 1 << 30
	lastStep  = 1 << 20
)

// errStopped means that a signal stopped the process while it waited.
var errStopped = errors.New("told to end")

// What the simulator's MPS control daemon and driver say. The packages mpssim and
// cudasim document it.
type (
	request struct {
		Op                     string `json:"op"`
		ActiveThreadPercentage string `json:"activeThreadPercentage,omitempty"`
		PinnedDeviceMemLimit   string `json:"pinnedDeviceMemLimit,omitempty"`
		Token                  string `json:"token,omitempty"`
		Device                 int    `json:"device,omitempty"`
		Bytes                  uint64 `json:"bytes,omitempty"`
	}
	reply struct {
		Waiting   string   `json:"waiting"`
		Server    int      `json:"server"`
		Shm       string   `json:"shm"`
		Client    *granted `json:"client"`
		UsedBytes *uint64  `json:"usedBytes"`
		// Devices and Memory are from the simulated driver.
		Devices []grantedDevice `json:"devices"`
		Memory  *cudaMemory     `json:"memory"`
		Error   *cudaError      `json:"error"`
	}
	cudaMemory struct {
		TotalBytes uint64 `json:"totalBytes"`
		FreeBytes  uint64 `json:"freeBytes"`
	}
	granted struct {
		Server                 int             `json:"server"`
		ActiveThreadPercentage float64         `json:"activeThreadPercentage"`
		Devices                []grantedDevice `json:"devices"`
	}
	grantedDevice struct {
		Ordinal     int    `json:"ordinal"`
		UUID        string `json:"uuid"`
		Name        string `json:"name"`
		MemoryBytes uint64 `json:"memoryBytes"`
		// LimitBytes is 0 for none.
		LimitBytes uint64 `json:"limitBytes"`
	}
	// cudaError is an error of CUDA's driver API.
	cudaError struct {
		Name    string `json:"name"`
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
)

func (e *cudaError) Error() string {
	return fmt.Sprintf("CUDA_ERROR_%s (%d): %s", e.Name, e.Code, e.Message)
}

// client is a client of an MPS server or of the simulated driver.
type client struct {
	root    root
	conn    net.Conn
	encoder *json.Encoder
	// lost is the error after the end of the connection.
	lost *cudaError
	// replies is closed with the connection.
	replies chan reply
}

// failure returns the error in a reply. If there is no reply, its error says that the
// connection has closed.
func (c *client) failure(r reply, ok bool) error {
	switch {
	case !ok:
		return c.lost
	case r.Error != nil:
		return r.Error
	default:
		return nil
	}
}

func connectMPS(ctx context.Context, r root, directory string) (*client, error) {
	if directory == "" {
		directory = defaultPipeDirectory
	}
	c, err := dial(ctx, r, path.Join(directory, "control"))
	if err == nil {
		c.lost = &cudaError{Name: "MPS_RPC_FAILURE", Code: 806, Message: "the MPS server has closed the connection"}
	}
	return c, err
}

func dial(ctx context.Context, r root, socket string) (*client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", r.path(socket))
	if err != nil {
		return nil, err
	}
	c := &client{
		root: r, conn: conn, encoder: json.NewEncoder(conn), replies: make(chan reply, 4),
		lost: &cudaError{Name: "UNKNOWN", Code: 999, Message: "the simulated driver has closed the connection"},
	}
	go func() {
		defer close(c.replies)
		decoder := json.NewDecoder(conn)
		for {
			var r reply
			if decoder.Decode(&r) != nil {
				return
			}
			c.replies <- r
		}
	}()
	return c, nil
}

// close ends the client and discards further replies.
func (c *client) close() {
	_ = c.conn.Close()
	for range c.replies {
		// until the reader has ended
	}
}

// start becomes a client, which may take until another user's have left.
func (c *client) start(ctx context.Context, report *cudaReport) error {
	err := c.encoder.Encode(request{
		Op:                     "connect",
		ActiveThreadPercentage: report.Env[threadLimit],
		PinnedDeviceMemLimit:   report.Env[memoryLimit],
	})
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return errStopped
		case r, ok := <-c.replies:
			if err := c.failure(r, ok); err != nil {
				return err
			}
			if r.Waiting != "" {
				report.Waited = r.Waiting
				continue
			}
			return c.attach(report, r.Shm)
		}
	}
}

// attach shows the server that this process sees its file in /dev/shm.
func (c *client) attach(report *cudaReport, shm string) error {
	// Without the file the token is empty, and the server replies with its error.
	token, _ := os.ReadFile(c.root.path(path.Join("dev/shm", path.Base(shm))))
	r, err := c.ask(request{Op: "attach", Token: string(token)})
	report.Client = r.Client
	return err
}

// initialise initialises CUDA without MPS, and queries the memory of the device.
func (c *client) initialise(report *cudaReport, o cudaOptions) error {
	r, err := c.ask(request{Op: "init"})
	if err != nil {
		return err
	}
	report.Devices = r.Devices
	r, err = c.ask(request{Op: "info", Device: o.device})
	report.Memory = r.Memory
	return err
}

// take allocates as the options say.
func (c *client) take(report *cudaReport, o cudaOptions) error {
	if !o.greedy {
		if o.memory == 0 {
			return nil
		}
		return c.allocate(report, o.device, uint64(o.memory))
	}
	step := uint64(o.memory)
	if step == 0 {
		step = firstStep
	}
	for step >= lastStep {
		err := c.allocate(report, o.device, step)
		if err == nil {
			continue
		}
		var refused *cudaError
		if !errors.As(err, &refused) || refused.Code != outOfMemory {
			return err
		}
		report.Refused = refused
		step /= 2
	}
	return nil
}

func (c *client) allocate(report *cudaReport, device int, bytes uint64) error {
	r, err := c.ask(request{Op: "alloc", Device: device, Bytes: bytes})
	if r.UsedBytes != nil {
		report.AllocatedBytes = *r.UsedBytes
	}
	return err
}

func (c *client) ask(q request) (reply, error) {
	if err := c.encoder.Encode(q); err != nil {
		return reply{}, err
	}
	r, ok := <-c.replies
	return r, c.failure(r, ok)
}

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

// defaultPipeDirectory is CUDA's default directory for MPS.
const defaultPipeDirectory = "/tmp/nvidia-mps"

// errStopped means that a signal stopped the process while it waited.
var errStopped = errors.New("told to end")

// What the simulator's stand-in for the MPS control daemon says; package
// pkg/nvmlsim/mpssim documents it.
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
		Waiting   string     `json:"waiting"`
		Server    int        `json:"server"`
		Shm       string     `json:"shm"`
		Client    *granted   `json:"client"`
		UsedBytes *uint64    `json:"usedBytes"`
		Error     *cudaError `json:"error"`
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

// failure is what a reply says went wrong; without a reply, the server has
// gone.
func (r reply) failure(ok bool) error {
	switch {
	case !ok:
		return &cudaError{Name: "MPS_RPC_FAILURE", Code: 806, Message: "the MPS server has closed the connection"}
	case r.Error != nil:
		return r.Error
	default:
		return nil
	}
}

// client is a client of an MPS server.
type client struct {
	root    root
	conn    net.Conn
	encoder *json.Encoder
	// replies is closed with the connection.
	replies chan reply
}

func connect(ctx context.Context, r root, directory string) (*client, error) {
	if directory == "" {
		directory = defaultPipeDirectory
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", r.path(path.Join(directory, "control")))
	if err != nil {
		return nil, err
	}
	c := &client{root: r, conn: conn, encoder: json.NewEncoder(conn), replies: make(chan reply, 4)}
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
			if err := r.failure(ok); err != nil {
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

func (c *client) allocate(report *cudaReport, o cudaOptions) error {
	r, err := c.ask(request{Op: "alloc", Device: o.device, Bytes: uint64(o.memory)})
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
	return r, r.failure(ok)
}

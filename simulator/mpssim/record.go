// SPDX-License-Identifier: Apache-2.0

package mpssim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpu-dra/gpu-dra-driver/simulator/simerr"
)

// RecordName is the file of the [Record] in the log directory.
const RecordName = "record.json"

// Record holds the settings of a daemon and the requested and actual limits of its
// clients. The daemon replaces it as a whole with each change, and continues it after
// a restart.
type Record struct {
	// PID of the daemon; Starts counts the daemons that have kept the record.
	PID    int `json:"pid"`
	Starts int `json:"starts"`
	// Devices that clients see, by UUID, in the order of their CUDA ordinals.
	Devices   []string `json:"devices"`
	MultiUser bool     `json:"multiUser,omitempty"`
	// Protocol is 2 or 3.
	Protocol int `json:"protocol"`
	// Defaults for the next server.
	Defaults Limits `json:"defaults"`
	// Servers in the order of their start, also the ones that have ended.
	Servers []ServerRecord `json:"servers,omitempty"`
	// Refused clients, oldest first.
	Refused []Refusal `json:"refused,omitempty"`
}

// ServerRecord is one server.
type ServerRecord struct {
	PID int `json:"pid"`
	// UID of the server, and so of its clients.
	UID int `json:"uid"`
	// Name and Namespaces of a server with protocol 3.
	Name       string            `json:"name,omitempty"`
	Namespaces []NamespaceRecord `json:"namespaces,omitempty"`
	// Status is ACTIVE or FAULT, and ENDED at last.
	Status  string         `json:"status"`
	Limits  Limits         `json:"limits"`
	Clients []ClientRecord `json:"clients,omitempty"`
}

// NamespaceRecord is a namespace and its limits, of which 0 is none.
type NamespaceRecord struct {
	Name                   string  `json:"name"`
	ActiveThreadPercentage float64 `json:"activeThreadPercentage,omitempty"`
	PinnedMemoryLimit      uint64  `json:"pinnedMemoryLimit,omitempty"` // of each device
}

// ClientRecord is one client of a server.
type ClientRecord struct {
	// Namespace that it has connected through, with protocol 3.
	Namespace string `json:"namespace,omitempty"`
	PID       int    `json:"pid"`
	UID       int    `json:"uid"`
	// AskedThreadPercentage and AskedMemoryLimit are the limits in the client's
	// environment.
	AskedThreadPercentage string `json:"askedThreadPercentage,omitempty"`
	AskedMemoryLimit      string `json:"askedMemoryLimit,omitempty"`
	// ActiveThreadPercentage that it got.
	ActiveThreadPercentage float64              `json:"activeThreadPercentage"`
	Devices                []ClientDeviceRecord `json:"devices"`
	// Refused are its allocations that failed, in words.
	Refused []string `json:"refused,omitempty"`
	// Ended says how it ended; empty for one that is there.
	Ended string `json:"ended,omitempty"`
}

// ClientDeviceRecord is a device of a client. A limit of 0 is none.
type ClientDeviceRecord struct {
	UUID       string `json:"uuid"`
	LimitBytes uint64 `json:"limitBytes"`
	UsedBytes  uint64 `json:"usedBytes"`
	PeakBytes  uint64 `json:"peakBytes"`
}

// Refusal is a client that was not admitted.
type Refusal struct {
	PID   int   `json:"pid"`
	UID   int   `json:"uid"`
	Error Error `json:"error"`
}

// Status of a server that has ended, in a record.
const ended = "ENDED"

// The record stays readable however long a daemon lives.
const (
	keptServers = 16
	keptClients = 256
)

// ReadRecord reads the record in a log directory. It is [simerr.ErrNotFound] where
// no daemon has written one.
func ReadRecord(logDir string) (*Record, error) {
	data, err := os.ReadFile(filepath.Join(logDir, RecordName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("record of an MPS daemon in %s: %w", logDir, simerr.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("record of an MPS daemon: %w", err)
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("record of an MPS daemon in %s: %w: %w", logDir, simerr.ErrCorrupt, err)
	}
	return r, nil
}

// write replaces the record in a log directory.
func (r *Record) write(logDir string) error {
	r.Servers = last(r.Servers, keptServers)
	r.Refused = last(r.Refused, keptClients)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(logDir, RecordName)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func last[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[len(all)-n:])
}

// SPDX-License-Identifier: Apache-2.0

// Package mpsv1 is version 1 of the protocol of gpu-mps-supervisor: HTTP on a unix socket,
// whose requests and responses are types of package gpu in JSON. The node agent uses it
// through package client.
package mpsv1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// DefaultSocket is the supervisor's unix socket unless it is configured otherwise.
const DefaultSocket = "/run/gpu-mps-supervisor/supervisor.sock"

// MaxBytes limits a request and a response. The list of all daemons of a node with their servers is far smaller.
const MaxBytes = 4 << 20

// The paths of the calls. A newer release may add fields and calls, and never changes one.
const (
	PathEnsure     = "/v1/ensure"     // [gpu.MPSDaemon] to [gpu.MPSDirs]
	PathStop       = "/v1/stop"       // name of a daemon to null
	PathList       = "/v1/list"       // whether to include servers, to a list of [gpu.MPSStatus]
	PathMultiUser  = "/v1/multi-user" // null to bool
	PathNamespaces = "/v1/namespaces" // null to bool
)

// Supervisor runs MPS daemons. The end of a context is the end of the client's call.
type Supervisor interface {
	EnsureMPS(ctx context.Context, d gpu.MPSDaemon) (gpu.MPSDirs, error)
	StopMPS(ctx context.Context, name string) error
	// MPSDaemons returns the status of every daemon, sorted by name. Without servers it waits
	// for no daemon.
	MPSDaemons(ctx context.Context, servers bool) ([]gpu.MPSStatus, error)
	MultiUser(ctx context.Context) (bool, error)
	Namespaces(ctx context.Context) (bool, error)
}

// Handler serves a supervisor.
func Handler(s Supervisor) http.Handler {
	mux := http.NewServeMux()
	handle(mux, PathEnsure, s.EnsureMPS)
	handle(mux, PathStop, func(ctx context.Context, name string) (any, error) { return nil, s.StopMPS(ctx, name) })
	handle(mux, PathList, s.MPSDaemons)
	handle(mux, PathMultiUser, func(ctx context.Context, _ any) (bool, error) { return s.MultiUser(ctx) })
	handle(mux, PathNamespaces, func(ctx context.Context, _ any) (bool, error) { return s.Namespaces(ctx) })
	return mux
}

func handle[Request, Response any](mux *http.ServeMux, path string, do func(context.Context, Request) (Response, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		// The server notices that a client has gone once it has read all of the request.
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBytes))
		var request Request
		if err == nil {
			if err = json.Unmarshal(body, &request); err != nil {
				err = fmt.Errorf("%w: %w", gpu.ErrInvalid, err)
			}
		}
		var response any
		if err == nil {
			response, err = do(r.Context(), request)
		}
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			response = failureOf(err)
		}
		_ = json.NewEncoder(w).Encode(response) // fails if the client has gone
	})
}

// failure is the response to a call that failed.
type failure struct {
	Message string
	// Reason stands for the sentinel of package gpu that the error wraps; empty for none.
	Reason string
}

type reason struct {
	sentinel error
	name     string
}

// reasons returns the sentinels that cross the socket. The first match counts.
func reasons() []reason {
	return []reason{
		{gpu.ErrInvalid, "INVALID"},
		{gpu.ErrNotFound, "NOT_FOUND"},
		{gpu.ErrInUse, "IN_USE"},
		{gpu.ErrNoCapacity, "NO_CAPACITY"},
		{gpu.ErrNotSupported, "NOT_SUPPORTED"},
		{gpu.ErrPermission, "PERMISSION"},
		{gpu.ErrCorrupt, "CORRUPT"},
		{gpu.ErrTimeout, "TIMEOUT"},
		{gpu.ErrNotReady, "NOT_READY"},
	}
}

func failureOf(err error) failure {
	for _, r := range reasons() {
		if errors.Is(err, r.sentinel) {
			return failure{Message: err.Error(), Reason: r.name}
		}
	}
	return failure{Message: err.Error()}
}

// remoteError is the supervisor's message with the sentinel that its reason stands for.
type remoteError struct {
	message  string
	sentinel error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.sentinel }

// DecodeError returns the error of a call from the body of its response. It wraps the same
// sentinel as the supervisor's error.
func DecodeError(body []byte) error {
	var f failure
	if err := json.Unmarshal(body, &f); err != nil {
		return fmt.Errorf("%w: %s", gpu.ErrNotSupported, body) // an older release without the call
	}
	for _, r := range reasons() {
		if r.name == f.Reason {
			return &remoteError{message: f.Message, sentinel: r.sentinel}
		}
	}
	return errors.New(f.Message)
}

// SPDX-License-Identifier: Apache-2.0

package mpsv1

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

type errorCode struct {
	err  error
	code codes.Code
}

// errorCodes returns the gRPC code of each error that crosses the socket. The first
// match counts.
func errorCodes() []errorCode {
	return []errorCode{
		{gpu.ErrInvalid, codes.InvalidArgument},
		{gpu.ErrNotFound, codes.NotFound},
		{gpu.ErrInUse, codes.FailedPrecondition},
		{gpu.ErrNoCapacity, codes.ResourceExhausted},
		{gpu.ErrNotSupported, codes.Unimplemented},
		{gpu.ErrPermission, codes.PermissionDenied},
		{gpu.ErrCorrupt, codes.DataLoss},
		{gpu.ErrTimeout, codes.DeadlineExceeded},
		{gpu.ErrNotReady, codes.Unavailable},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{context.Canceled, codes.Canceled},
	}
}

// EncodeError returns the gRPC error for an error of the supervisor.
func EncodeError(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Internal
	known := errorCodes()
	if i := slices.IndexFunc(known, func(c errorCode) bool { return errors.Is(err, c.err) }); i >= 0 {
		code = known[i].code
	}
	return status.Error(code, err.Error())
}

// remoteError is the supervisor's message with the sentinel that its code stands for.
type remoteError struct {
	message  string
	sentinel error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.sentinel }

// DecodeError returns the error that the supervisor returned for a call, which wraps
// the same sentinel.
func DecodeError(err error) error {
	s := status.Convert(err)
	known := errorCodes()
	if i := slices.IndexFunc(known, func(c errorCode) bool { return c.code == s.Code() }); i >= 0 {
		return &remoteError{message: s.Message(), sentinel: known[i].err}
	}
	return errors.New(s.Message())
}

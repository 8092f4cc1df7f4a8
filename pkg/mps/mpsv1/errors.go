// SPDX-License-Identifier: Apache-2.0

package mpsv1

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// errorDomain is the domain of the detail in the supervisor's own errors.
const errorDomain = "gpu-mps-supervisor"

type errorCode struct {
	err  error
	code codes.Code
	// reason is the reason of the detail. It is empty for the errors of a context, which
	// gRPC reports with the same codes.
	reason string
}

// errorCodes returns the gRPC code of each error that crosses the socket. The first
// match counts.
func errorCodes() []errorCode {
	return []errorCode{
		{gpu.ErrInvalid, codes.InvalidArgument, "INVALID"},
		{gpu.ErrNotFound, codes.NotFound, "NOT_FOUND"},
		{gpu.ErrInUse, codes.FailedPrecondition, "IN_USE"},
		{gpu.ErrNoCapacity, codes.ResourceExhausted, "NO_CAPACITY"},
		{gpu.ErrNotSupported, codes.Unimplemented, "NOT_SUPPORTED"},
		{gpu.ErrPermission, codes.PermissionDenied, "PERMISSION"},
		{gpu.ErrCorrupt, codes.DataLoss, "CORRUPT"},
		{gpu.ErrTimeout, codes.DeadlineExceeded, "TIMEOUT"},
		{gpu.ErrNotReady, codes.Unavailable, "NOT_READY"},
		{context.DeadlineExceeded, codes.DeadlineExceeded, ""},
		{context.Canceled, codes.Canceled, ""},
	}
}

// EncodeError returns the gRPC error for an error of the supervisor. The error has a detail
// if it wraps a sentinel of package gpu.
func EncodeError(err error) error {
	if err == nil {
		return nil
	}
	known := errorCodes()
	i := slices.IndexFunc(known, func(c errorCode) bool { return errors.Is(err, c.err) })
	if i < 0 {
		return status.Error(codes.Internal, err.Error())
	}
	s := status.New(known[i].code, err.Error())
	if known[i].reason == "" {
		return s.Err()
	}
	detailed, detailErr := s.WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: known[i].reason})
	if detailErr != nil {
		return s.Err()
	}
	return detailed.Err()
}

// IsFromSupervisor reports whether an error of a call has the supervisor's detail. gRPC
// returns the same codes without it if the supervisor is away or late.
func IsFromSupervisor(err error) bool {
	return slices.ContainsFunc(status.Convert(err).Details(), func(detail any) bool {
		info, ok := detail.(*errdetails.ErrorInfo)
		return ok && info.GetDomain() == errorDomain
	})
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

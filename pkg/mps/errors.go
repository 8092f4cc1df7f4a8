package mps

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
)

// sentinels are the errors that cross the socket and the codes they travel as.
// The first that fits counts.
var sentinels = []struct {
	err  error
	code codes.Code
}{
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

// toWire gives an error the code under which the other end knows it.
func toWire(err error) error {
	if err == nil {
		return nil
	}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			return status.Error(s.code, err.Error())
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// remoteError is what the supervisor said, with the sentinel that it meant.
type remoteError struct {
	message  string
	sentinel error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.sentinel }

// fromWire gives the error of a call to the supervisor on socket.
func fromWire(socket string, err error) error {
	s := status.Convert(err)
	says := func(sentinel error) bool { return strings.Contains(s.Message(), sentinel.Error()) }
	switch code := s.Code(); {
	// gRPC itself says Unavailable of a server that it does not reach, and ours
	// of a daemon, in the sentinel's words.
	case code == codes.Unavailable && !says(gpu.ErrNotReady):
		return fmt.Errorf("%w: gpu-mps-supervisor does not answer on %s; see whether its pod runs on this node (%s)", gpu.ErrNotReady, socket, s.Message())
	// Of a call that its deadline cuts off, gRPC says either of the two.
	case (code == codes.DeadlineExceeded || code == codes.Canceled) && !says(gpu.ErrTimeout):
		return fmt.Errorf("%w: gpu-mps-supervisor has not answered in time on %s; see the log of its pod on this node (%s)", gpu.ErrTimeout, socket, s.Message())
	}
	for _, known := range sentinels {
		if s.Code() == known.code {
			return &remoteError{message: s.Message(), sentinel: known.err}
		}
	}
	return errors.New(s.Message())
}

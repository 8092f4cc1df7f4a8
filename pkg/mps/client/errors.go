// SPDX-License-Identifier: Apache-2.0

package client

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/mps/mpsv1"
)

// callError returns the error of a call to the supervisor on the socket.
func callError(socket string, err error) error {
	if mpsv1.IsFromSupervisor(err) {
		return mpsv1.DecodeError(err)
	}
	switch s := status.Convert(err); s.Code() {
	case codes.Unavailable:
		return fmt.Errorf("%w: gpu-mps-supervisor does not answer on %s; see whether its pod runs on this node (%s)", gpu.ErrNotReady, socket, s.Message())
	// gRPC returns either of the two if the deadline of a call passes.
	case codes.DeadlineExceeded, codes.Canceled:
		return fmt.Errorf("%w: gpu-mps-supervisor has not answered in time on %s; see the log of its pod on this node (%s)", gpu.ErrTimeout, socket, s.Message())
	}
	return mpsv1.DecodeError(err)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpu-dra/gpu-dra-driver/cmd/internal/programtest"
	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/test/files"
)

func TestInvalidFlagsAreRefused(t *testing.T) {
	for _, arg := range []string{"--after=-1s", "--timeout=9s", "--evictions-per-hour=0"} {
		cmd := newCommand()
		cmd.SetArgs([]string{arg})
		if err := cmd.ExecuteContext(t.Context()); !errors.Is(err, gpu.ErrInvalid) || !strings.HasPrefix(err.Error(), arg) {
			t.Errorf("%s: error %v", arg, err)
		}
	}
}

func TestHelp(t *testing.T) {
	files.Golden(t, "help.txt", programtest.Output(t, newCommand(), "--help"))
}

// SPDX-License-Identifier: Apache-2.0

package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gpu-dra/gpu-dra-driver/pkg/gpu"
	"github.com/gpu-dra/gpu-dra-driver/pkg/store"
)

// readRecord returns the record of a key; nil if there is none. The error for a record that
// cannot be decoded wraps [gpu.ErrCorrupt] and begins with the subject and the key. It
// needs no lock.
func readRecord[T any](records *store.Store, key, subject string) (*T, error) {
	payload, err := records.Read(key)
	r := new(T)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil:
		err = json.Unmarshal(payload, r)
	case !errors.Is(err, store.ErrCorrupt):
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %w", subject, key, gpu.ErrCorrupt, err)
	}
	return r, nil
}

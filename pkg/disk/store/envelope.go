// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
)

var (
	// ErrCorrupt means that the bytes on disk differ from the written record.
	ErrCorrupt = errors.New("corrupt record")
	// ErrNewer means that this release does not know the format of the envelope.
	// The record may be valid, so callers must not change it.
	ErrNewer = errors.New("record of a newer format")
)

const (
	magic = "record"
	// formatVersion is the version of the envelope. Payloads have versions of their
	// own.
	formatVersion = 1
)

// encode returns payload with its envelope, one line of text:
//
//	record 1 sha256:<64 hex digits>
//	<payload, byte for byte>
func encode(payload []byte) []byte {
	return append(fmt.Appendf(nil, "%s %d %s\n", magic, formatVersion, checksum(payload)), payload...)
}

// decode returns the payload of a record, or ErrCorrupt or ErrNewer.
func decode(data []byte) ([]byte, error) {
	line, payload, ok := bytes.Cut(data, []byte("\n"))
	fields := bytes.Split(line, []byte(" "))
	if !ok || len(fields) < 2 || string(fields[0]) != magic {
		return nil, fmt.Errorf("%w: %d bytes without a record header", ErrCorrupt, len(data))
	}
	version, err := strconv.Atoi(string(fields[1]))
	if err != nil || version < 1 || strconv.Itoa(version) != string(fields[1]) {
		return nil, fmt.Errorf("%w: format version %q", ErrCorrupt, fields[1])
	}
	if version > formatVersion {
		return nil, fmt.Errorf("%w: format version %d, this release knows %d", ErrNewer, version, formatVersion)
	}
	if len(fields) != 3 {
		return nil, fmt.Errorf("%w: header of %d fields", ErrCorrupt, len(fields))
	}
	if want, got := string(fields[2]), checksum(payload); want != got {
		return nil, fmt.Errorf("%w: the header says %s, the %d bytes after it have %s", ErrCorrupt, want, len(payload), got)
	}
	return payload, nil
}

func checksum(payload []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(payload))
}

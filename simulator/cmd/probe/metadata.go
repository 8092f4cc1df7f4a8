// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const metadataDir = "var/run/kubernetes.io/dra-device-attributes"

// metadata is one device as a DRA device metadata file describes it.
type metadata struct {
	// Claim is the name of the ResourceClaim.
	Claim   string `json:"claim"`
	Request string `json:"request"`
	Device  string `json:"device"`
	// Attributes by name, as in a ResourceSlice.
	Attributes json.RawMessage `json:"attributes"`
}

// document is the part of metadata.resource.k8s.io's DeviceMetadata that all
// its versions share.
type document struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Requests []struct {
		Name    string `json:"name"`
		Devices []struct {
			Name       string          `json:"name"`
			Attributes json.RawMessage `json:"attributes"`
		} `json:"devices"`
	} `json:"requests"`
}

func lookAtMetadata(r root) ([]metadata, error) {
	all := []metadata{}
	err := filepath.WalkDir(r.path(metadataDir), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".json") {
			return err
		}
		found, err := readMetadata(r, path)
		all = append(all, found...)
		return err
	})
	return all, err
}

// readMetadata reads the first document of the stream in a file: the same
// thing follows in older versions of the API.
func readMetadata(r root, path string) ([]metadata, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read
	var doc document
	if err := json.NewDecoder(file).Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s: %w", r.outside(path), err)
	}
	if doc.Kind != "DeviceMetadata" {
		return nil, fmt.Errorf("%s: kind %q, want DeviceMetadata", r.outside(path), doc.Kind)
	}
	var all []metadata
	for _, request := range doc.Requests {
		for _, d := range request.Devices {
			all = append(all, metadata{Claim: doc.Metadata.Name, Request: request.Name, Device: d.Name, Attributes: d.Attributes})
		}
	}
	return all, nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const metadataDir = "var/run/kubernetes.io/dra-device-attributes"

// metadata is one device as a DRA device metadata file describes it.
type metadata struct {
	File string `json:"file"`
	// Claim is the name of the ResourceClaim, PodClaim its name in the pod.
	Claim      string               `json:"claim"`
	PodClaim   string               `json:"podClaim,omitempty"`
	Request    string               `json:"request"`
	Driver     string               `json:"driver"`
	Pool       string               `json:"pool"`
	Device     string               `json:"device"`
	Attributes map[string]attribute `json:"attributes"`
}

// attribute has the shape of one in a ResourceSlice.
type attribute struct {
	Bool     *bool    `json:"bool,omitempty"`
	Int      *int64   `json:"int,omitempty"`
	String   *string  `json:"string,omitempty"`
	Version  *string  `json:"version,omitempty"`
	Bools    []bool   `json:"bools,omitempty"`
	Ints     []int64  `json:"ints,omitempty"`
	Strings  []string `json:"strings,omitempty"`
	Versions []string `json:"versions,omitempty"`
}

// document is the part of metadata.resource.k8s.io's DeviceMetadata that all
// its versions share.
type document struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	PodClaimName string `json:"podClaimName"`
	Requests     []struct {
		Name    string `json:"name"`
		Devices []struct {
			Driver     string               `json:"driver"`
			Pool       string               `json:"pool"`
			Name       string               `json:"name"`
			Attributes map[string]attribute `json:"attributes"`
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
	slices.SortStableFunc(all, func(a, b metadata) int { return strings.Compare(a.File, b.File) })
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
			all = append(all, metadata{
				File:       r.outside(path),
				Claim:      doc.Metadata.Name,
				PodClaim:   doc.PodClaimName,
				Request:    request.Name,
				Driver:     d.Driver,
				Pool:       d.Pool,
				Device:     d.Name,
				Attributes: d.Attributes,
			})
		}
	}
	return all, nil
}

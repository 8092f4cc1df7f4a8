// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"

	"github.com/gpu-dra/gpu-dra-driver/deployments/container/internal/artifact"
)

// chartFolder is the part of the chart's reference between the prefix and its name.
const chartFolder = "charts"

// Types with which Helm finds a chart in a registry.
const (
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// repack rewrites a chart package without the times of its files. Then the same chart
// makes the same bytes.
func repack(file string) error {
	var out bytes.Buffer
	err := chartFiles(file, func(entries *tar.Reader) error {
		zip := gzip.NewWriter(&out)
		w := tar.NewWriter(zip)
		for {
			header, err := entries.Next()
			if errors.Is(err, io.EOF) {
				return errors.Join(w.Close(), zip.Close())
			}
			if err != nil {
				return err
			}
			content, err := io.ReadAll(entries)
			if err != nil {
				return err
			}
			plain := tar.Header{Typeflag: tar.TypeReg, Name: header.Name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
			if err := w.WriteHeader(&plain); err != nil {
				return err
			}
			if _, err := w.Write(content); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("pack %s again: %w", file, err)
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// chartFiles calls use with the files of a chart package.
func chartFiles(file string, use func(*tar.Reader) error) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read from
	zip, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	return use(tar.NewReader(zip))
}

// chartArtifact returns a chart package as Helm pushes it, without Helm's annotation with the time.
func chartArtifact(file string) (v1.Image, error) {
	var metadata []byte
	err := chartFiles(file, func(entries *tar.Reader) error {
		for {
			header, err := entries.Next()
			if err != nil {
				return err
			}
			if dir, base := path.Split(path.Clean(header.Name)); base == "Chart.yaml" && path.Dir(path.Clean(dir)) == "." {
				text, err := io.ReadAll(entries)
				if err != nil {
					return err
				}
				metadata, err = yaml.YAMLToJSON(text)
				return err
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read Chart.yaml of %s: %w", file, err)
	}
	var chart struct{ Name, Version, Description string }
	if err := yaml.Unmarshal(metadata, &chart); err != nil {
		return nil, fmt.Errorf("read Chart.yaml of %s: %w", file, err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return artifact.Artifact{
		Config: artifact.Blob{Type: chartConfig, Content: metadata},
		File:   artifact.Blob{Type: chartContent, Content: content},
		Annotations: map[string]string{
			"org.opencontainers.image.title": chart.Name, "org.opencontainers.image.version": chart.Version,
			"org.opencontainers.image.description": chart.Description, "org.opencontainers.image.source": source,
		},
	}.Image()
}

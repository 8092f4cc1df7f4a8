// SPDX-License-Identifier: Apache-2.0

// Package artifact makes OCI artifacts: one file with a manifest, such as a chart, or a
// bill of materials that refers to an image.
//
// Out of scope: registries; images.
package artifact

import (
	"bytes"
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Blob is content with its media type.
type Blob struct {
	Type    types.MediaType
	Content []byte
}

// Empty returns the configuration of artifacts that have none.
func Empty() Blob {
	return Blob{Type: "application/vnd.oci.empty.v1+json", Content: []byte("{}")}
}

// Artifact is one file, and what a registry says of it.
type Artifact struct {
	// Type is the type of the artifact. Empty means that of the configuration.
	Type        string
	Config      Blob
	File        Blob
	Annotations map[string]string
	// Subject is the manifest that the artifact refers to, or nil.
	Subject *v1.Descriptor
}

// manifest of OCI's version 1.1.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     types.MediaType   `json:"mediaType"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        v1.Descriptor     `json:"config"`
	Layers        []v1.Descriptor   `json:"layers"`
	Subject       *v1.Descriptor    `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// Image returns the artifact in the form in which registries take it.
func (a Artifact) Image() (v1.Image, error) {
	config, err := a.Config.descriptor()
	if err != nil {
		return nil, err
	}
	layer, err := a.File.descriptor()
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: a.Type,
		Config: config, Layers: []v1.Descriptor{layer}, Subject: a.Subject, Annotations: a.Annotations,
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(core{a, raw, layer.Digest})
}

func (b Blob) descriptor() (v1.Descriptor, error) {
	hash, size, err := v1.SHA256(bytes.NewReader(b.Content))
	return v1.Descriptor{MediaType: b.Type, Digest: hash, Size: size}, err
}

// core has what a v1.Image follows from.
type core struct {
	artifact Artifact
	manifest []byte
	layer    v1.Hash
}

func (c core) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (c core) RawManifest() ([]byte, error)        { return c.manifest, nil }
func (c core) RawConfigFile() ([]byte, error)      { return c.artifact.Config.Content, nil }

func (c core) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	if h != c.layer {
		return nil, fmt.Errorf("artifact: no layer %s", h)
	}
	return static.NewLayer(c.artifact.File.Content, c.artifact.File.Type), nil
}

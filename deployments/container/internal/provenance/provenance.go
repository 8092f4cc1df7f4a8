// SPDX-License-Identifier: Apache-2.0

// Package provenance writes an in-toto statement about the inputs of a release. Its
// predicate is SLSA's provenance v1. The same input makes the same bytes: it has no time.
//
// Out of scope: signatures. Without one, a statement proves nothing.
package provenance

import "encoding/json"

// Types of the statement, in a registry and in the statement itself.
const (
	MediaType     = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
)

// Subject is a file or an image that was built. Digest is in hexadecimal digits.
type Subject struct {
	Name   string `json:"name"`
	Digest Digest `json:"digest"`
}

// Digest is the value by the algorithm.
type Digest map[string]string

// Dependency is an input of the build.
type Dependency struct {
	URI    string `json:"uri"`
	Digest Digest `json:"digest,omitempty"`
}

// Build describes one build.
type Build struct {
	// Type is the address of the document that says what the parameters mean.
	Type string
	// Builder is the address of the workflow or the document that stands for who built it.
	Builder string
	// External are the parameters that a user sets, and Internal the builder's own.
	External, Internal map[string]string
	Dependencies       []Dependency
	Subjects           []Subject
}

// Marshal returns the statement.
func Marshal(b Build) ([]byte, error) {
	type object = map[string]any
	text, err := json.MarshalIndent(object{
		"_type": statementType, "predicateType": predicateType, "subject": b.Subjects,
		"predicate": object{
			"buildDefinition": object{
				"buildType": b.Type, "externalParameters": b.External, "internalParameters": b.Internal, "resolvedDependencies": b.Dependencies,
			},
			"runDetails": object{"builder": object{"id": b.Builder}},
		},
	}, "", "  ")
	return append(text, '\n'), err
}

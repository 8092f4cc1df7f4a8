// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates and kubeconfigs of a test cluster: one
// authority that signs everything, valid for a year, in memory or as PEM.
//
// Out of scope: rotation, revocation and authorities per purpose.
package pki

// SPDX-License-Identifier: Apache-2.0

// Package disk is the storey of files.
//
//	home      the folder of an agent on its node: its records, locks and installed programs
//	store     records that survive a crash: each is whole, or is known to be damaged
//	folder    locks and watches of a folder that several processes use
//	livefile  a file of an administrator, read again when it changes
//	file      reading and replacing one file
package disk

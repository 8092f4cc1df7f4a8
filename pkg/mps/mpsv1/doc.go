// Package mpsv1 is version 1 of the protocol of gpu-mps-supervisor, generated
// from supervisor.proto. Use it through package mps.
package mpsv1

//go:generate go -C ../../../tools run ./protoc ../pkg/mps/mpsv1/supervisor.proto

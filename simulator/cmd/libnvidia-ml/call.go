// SPDX-License-Identifier: Apache-2.0

package main

import "C"

import (
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// The functions of nvml.h differ in little but types. These are their common parts.

// status is nvmlReturn_t.
type status int32

// invalid is the answer to a pointer or a handle that the function cannot take.
const invalid = status(nvml.ERROR_INVALID_ARGUMENT)

// begin returns the library, or the answer of every function before nvmlInit. The caller may
// not leave the pointers out.
func begin(pointers ...unsafe.Pointer) (nvml.Interface, status) {
	lib, ready := process.nvml()
	if !ready {
		return nil, status(nvml.ERROR_UNINITIALIZED)
	}
	for _, p := range pointers {
		if p == nil {
			return nil, invalid
		}
	}
	return lib, 0
}

// object returns the object of a handle.
func object[T any](h handle, pointers ...unsafe.Pointer) (T, status) {
	var none T
	if _, ret := begin(pointers...); ret != 0 {
		return none, ret
	}
	o, ok := find[T](&process.handles, h)
	if !ok {
		return none, invalid
	}
	return o, 0
}

// read stores the result of a method of the handle's object. A pointer to a struct of C has
// no type in Go, so the result has the type.
func read[T, V any](h handle, to unsafe.Pointer, method func(T) (V, nvml.Return)) status {
	o, ret := object[T](h, to)
	if ret != 0 {
		return ret
	}
	return store((*V)(to))(method(o))
}

// readVersion is read for a struct that begins with its version, which the caller has
// written.
func readVersion[T, V any](h handle, to unsafe.Pointer, version uint32, method func(T) (V, nvml.Return)) status {
	if _, ret := begin(to); ret != 0 {
		return ret
	}
	if *(*uint32)(to) != versionOf[V](version) {
		return wrongVersion
	}
	return read(h, to, method)
}

// number is an integer of C or go-nvml.
type number interface {
	~int | ~int32 | ~uint32 | ~uint64
}

// readNumber is read for a number whose type in C is another one than in go-nvml.
func readNumber[T any, V, C number](h handle, to *C, method func(T) (V, nvml.Return)) status {
	o, ret := object[T](h, unsafe.Pointer(to))
	if ret != 0 {
		return ret
	}
	return storeNumber[V](to)(method(o))
}

// readTwo is readNumber for two numbers.
func readTwo[V, C number](h handle, first, second *C, method func(nvml.Device) (V, V, nvml.Return)) status {
	d, ret := object[nvml.Device](h, unsafe.Pointer(first), unsafe.Pointer(second))
	if ret != 0 {
		return ret
	}
	one, two, code := method(d)
	if code == nvml.SUCCESS {
		*first, *second = C(one), C(two)
	}
	return status(code)
}

// readAll is read for a list in an array of the caller that is long enough by nvml.h.
func readAll[T, V any](h handle, to unsafe.Pointer, count *uint32, method func(T) ([]V, nvml.Return)) status {
	o, ret := object[T](h, unsafe.Pointer(count))
	if ret != 0 {
		return ret
	}
	list, code := method(o)
	if code != nvml.SUCCESS {
		return status(code)
	}
	return storeAll((*V)(to), count, list)
}

// readText is read for a text in a buffer of the caller.
func readText(h handle, to *C.char, length uint32, method func(nvml.Device) (string, nvml.Return)) status {
	d, ret := object[nvml.Device](h, unsafe.Pointer(to))
	if ret != 0 {
		return ret
	}
	return storeText(to, length)(method(d))
}

// readHandle is read for a handle.
func readHandle[T, V any](h handle, to *handle, method func(T) (V, nvml.Return)) status {
	o, ret := object[T](h, unsafe.Pointer(to))
	if ret != 0 {
		return ret
	}
	return storeHandle[V](to)(method(o))
}

// store returns a function that stores a result, unless the call failed.
func store[V any](to *V) func(V, nvml.Return) status {
	return func(value V, ret nvml.Return) status {
		if ret == nvml.SUCCESS {
			*to = value
		}
		return status(ret)
	}
}

// storeNumber is store for a number whose type in C is another one than in go-nvml.
func storeNumber[V, C number](to *C) func(V, nvml.Return) status {
	return func(value V, ret nvml.Return) status { return store(to)(C(value), ret) }
}

// storeHandle is store for a handle of the result.
func storeHandle[V any](to *handle) func(V, nvml.Return) status {
	return func(value V, ret nvml.Return) status {
		if ret == nvml.SUCCESS {
			*to = process.handles.handleOf(value)
		}
		return status(ret)
	}
}

// storeText is store for a text with a zero at its end, in a buffer of length bytes.
func storeText(to *C.char, length uint32) func(string, nvml.Return) status {
	return func(text string, ret nvml.Return) status {
		if ret != nvml.SUCCESS {
			return status(ret)
		}
		if uint64(len(text)) >= uint64(length) {
			return status(nvml.ERROR_INSUFFICIENT_SIZE)
		}
		buffer := unsafe.Slice((*byte)(unsafe.Pointer(to)), len(text)+1)
		buffer[copy(buffer, text)] = 0
		return 0
	}
}

// storeList stores a list in an array of the caller. Before, *count is the length of the
// array; after, it is the length of the list. Nothing is stored in an array that is too short.
func storeList[V any](to *V, count *uint32, list []V) status {
	length := *count
	*count = uint32(len(list))
	if uint64(length) < uint64(len(list)) {
		return status(nvml.ERROR_INSUFFICIENT_SIZE)
	}
	return storeAll(to, count, list)
}

// storeAll stores a list in an array of the caller, and its length in *count. By nvml.h the
// array is long enough. Without an array it stores the length only.
func storeAll[V any](to *V, count *uint32, list []V) status {
	*count = uint32(len(list))
	if to != nil {
		copy(unsafe.Slice(to, len(list)), list)
	}
	return 0
}

// mapped returns a list with each element converted.
func mapped[A, B any](list []A, convert func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, a := range list {
		out = append(out, convert(a))
	}
	return out
}

// versionOf returns the value of the field version of a struct. Callers write it with the
// macro NVML_STRUCT_VERSION.
func versionOf[V any](version uint32) uint32 {
	var v V
	return nvml.STRUCT_VERSION(v, version)
}

// wrongVersion is the answer to a struct of another version.
const wrongVersion = status(nvml.ERROR_ARGUMENT_VERSION_MISMATCH)

// SPDX-License-Identifier: Apache-2.0

package main

// #include <stdlib.h>
import "C"

import (
	"sync"
	"unsafe"
)

// handle is a pointer that C programs have in place of an object of the simulator:
// nvmlDevice_t, nvmlGpuInstance_t, nvmlComputeInstance_t or nvmlEventSet_t. It points to a
// byte of C's heap, because a Go program may load this library: its garbage collector ends
// the program if it finds a small number in a pointer.
type handle uintptr

// handles are the objects that the program has handles of. Two handles of the same object
// are equal. The zero value has none.
type handles struct {
	mu      sync.RWMutex
	objects map[handle]any
	known   map[any]unsafe.Pointer
}

// handleOf returns the handle of an object, which must be comparable.
func (t *handles) handleOf(object any) handle {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p, ok := t.known[object]; ok {
		return handle(p)
	}
	if t.objects == nil {
		t.objects, t.known = map[handle]any{}, map[any]unsafe.Pointer{}
	}
	p := C.malloc(1)
	t.objects[handle(p)], t.known[object] = object, p
	return handle(p)
}

// find returns the object of a handle. It is false for a handle that the table does not
// have, or that is of another type.
func find[T any](t *handles, h handle) (T, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	object, ok := t.objects[h].(T)
	return object, ok
}

// drop forgets an object that has ended. Its handle is invalid from now on.
func (t *handles) drop(object any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(object)
}

// dropHandles forgets all objects of a type.
func dropHandles[T any](t *handles) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for object := range t.known {
		if _, ok := object.(T); ok {
			t.remove(object)
		}
	}
}

// clear forgets all objects.
func (t *handles) clear() { dropHandles[any](t) }

// remove removes an object. The caller holds the lock.
func (t *handles) remove(object any) {
	if p, ok := t.known[object]; ok {
		delete(t.objects, handle(p))
		delete(t.known, object)
		C.free(p)
	}
}

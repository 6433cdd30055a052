package comm

import (
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// bytesOf is the memory of a slice's elements. It makes buf escape to the heap, where memory does
// not move.
func bytesOf[T any](buf []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf))*sizeOf[T]())
}

// sizeOf is the size of an element in bytes.
func sizeOf[T any]() uintptr {
	var zero T
	return unsafe.Sizeof(zero)
}

// elemType is the type of a buffer's elements: a nil *T.
type elemType any

func elemOf[T any]() elemType { return (*T)(nil) }

// wordOf is the word of an interface that identifies the type of its value.
func wordOf(e elemType) uintptr { return *(*uintptr)(unsafe.Pointer(&e)) }

// checkElem is nil if values of type T hold no pointers, so that their bytes are the whole value.
// Otherwise it is an ErrType that names the field. c may be nil. The lock is not needed.
func checkElem[T any](c *Comm) error { return c.checkElem(elemOf[T]()) }

func (c *Comm) checkElem(e elemType) error {
	if c.isNull() {
		return elemError(reflect.TypeOf(e).Elem())
	}
	word := wordOf(e)
	if c.job.elems.isGood(word) {
		return nil
	}
	return c.job.elems.check(word, reflect.TypeOf(e).Elem())
}

// elemCache remembers the types that can be sent. Goroutines may share it.
type elemCache struct {
	good [16]atomic.Uintptr // the types that were used last, each at the index of its word
	all  sync.Map           // reflect.Type → struct{}
}

func (e *elemCache) place(word uintptr) *atomic.Uintptr { return &e.good[word>>5%uintptr(len(e.good))] }

func (e *elemCache) isGood(word uintptr) bool { return e.place(word).Load() == word }

func (e *elemCache) check(word uintptr, t reflect.Type) error {
	if _, known := e.all.Load(t); !known {
		if err := elemError(t); err != nil {
			return err
		}
		e.all.Store(t, struct{}{})
	}
	e.place(word).Store(word)
	return nil
}

// elemError is the error of a type that holds pointers, or nil if t holds none.
func elemError(t reflect.Type) error {
	path, what := findPointer(t, "")
	switch {
	case what == nil:
		return nil
	case path == "":
		return fmt.Errorf("%w %v: it holds a pointer", ErrType, t)
	case path[0] == '.':
		return fmt.Errorf("%w %v: field %s (%v) holds a pointer", ErrType, t, path[1:], what)
	default:
		return fmt.Errorf("%w %v: element %s (%v) holds a pointer", ErrType, t, path, what)
	}
}

// findPointer finds the first pointer in a value of type t at path. It returns the pointer's path,
// as in ".Field[0].Field", and its type, or nil if there is none.
func findPointer(t reflect.Type, path string) (string, reflect.Type) {
	switch t.Kind() {
	case reflect.Array:
		if t.Len() == 0 {
			return "", nil
		}
		return findPointer(t.Elem(), path+"[0]")
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if where, what := findPointer(f.Type, path+"."+f.Name); what != nil {
				return where, what
			}
		}
		return "", nil
	case reflect.Pointer, reflect.UnsafePointer, reflect.Slice, reflect.String, reflect.Map,
		reflect.Chan, reflect.Func, reflect.Interface:
		return path, t
	}
	return "", nil
}

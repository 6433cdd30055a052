package comm

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/mpigo/mpigo/internal/calls"
	"github.com/mpigo/mpigo/pml"
)

// A value is sent as a message of bytes: valueMagic, the length of the type's name as an unsigned
// varint, the name, and the value in gob, as field V of a struct.
const valueMagic = "\x00mpigo\x01v"

// maxValueBytes bounds the memory for a message. gob does not decode longer values.
const maxValueBytes = 1 << 33

type valueBox[T any] struct{ V T }

// SendValue sends a value of any type that encoding/gob supports. RecvValue receives it. It is
// meant for control data, because it copies and allocates. The message is a message of bytes, which
// any receive or probe can match.
//
// SendValue returns under the same conditions as Send. The error is ErrType if gob does not support
// the value.
func SendValue[T any](c *Comm, v T, dest, tag int) error {
	const op = calls.SendValue
	b, bad := encodeValue(v)
	if err := c.enterSend(bad, dest, tag); err != nil {
		return c.fail(op, dest, tag, err)
	}
	defer c.leave()
	c.count(op, len(b))
	if c.job.check != nil {
		return c.sendAudited(elemOf[byte](), b, dest, tag, pml.Standard, op)
	}
	return c.sendEntered(b, dest, tag, pml.Standard, op)
}

// RecvValue receives a value that SendValue has sent with the same T. If the message is not such a
// value, or has another type, RecvValue still receives the message, and returns ErrType. The status
// counts bytes.
func RecvValue[T any](c *Comm, source, tag int) (T, Status, error) {
	const op = calls.RecvValue
	var zero T
	m, st, err := c.probe(source, tag, true, op)
	if err != nil {
		return zero, st, err
	}
	if m.m == nil { // from ProcNull
		return zero, st, nil
	}
	b := make([]byte, min(st.Bytes, maxValueBytes))
	if st, err = m.mrecv(elemOf[byte](), b, 1, op); err != nil {
		return zero, st, err
	}
	v, err := decodeValue[T](b)
	return v, st, c.fail(op, st.Source, st.Tag, err)
}

func encodeValue[T any](v T) (b []byte, err error) {
	// gob panics on some values that it cannot encode.
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("%w %v: %v", ErrType, reflect.TypeFor[T](), p)
		}
	}()
	name := valueTypeName[T]()
	b = binary.AppendUvarint([]byte(valueMagic), uint64(len(name)))
	buf := bytes.NewBuffer(append(b, name...))
	if err := gob.NewEncoder(buf).Encode(&valueBox[T]{v}); err != nil {
		if strings.Contains(err.Error(), "valueBox") { // no field can be encoded
			err = errors.New("encoding/gob cannot encode it")
		}
		return nil, fmt.Errorf("%w %v: %w", ErrType, reflect.TypeFor[T](), err)
	}
	return buf.Bytes(), nil
}

func decodeValue[T any](b []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrType, p)
		}
	}()
	rest, ok := bytes.CutPrefix(b, []byte(valueMagic))
	if !ok {
		return v, fmt.Errorf("%w: the message is not one of SendValue", ErrType)
	}
	size, n := binary.Uvarint(rest)
	if n <= 0 || size > uint64(len(rest)-n) {
		return v, fmt.Errorf("%w: the message is damaged", ErrType)
	}
	name, data := string(rest[n:n+int(size)]), rest[n+int(size):]
	if want := valueTypeName[T](); name != want {
		return v, fmt.Errorf("%w: the value is a %.100q, not a %q", ErrType, name, want)
	}
	var box valueBox[T]
	if err := gob.NewDecoder(bytes.NewReader(data)).Decode(&box); err != nil {
		return v, fmt.Errorf("%w: value of type %v: %w", ErrType, reflect.TypeFor[T](), err)
	}
	return box.V, nil
}

// valueTypeName is the name of a type with its package, so that types with equal names differ.
func valueTypeName[T any]() string {
	t := reflect.TypeFor[T]()
	if t.PkgPath() != "" {
		return t.PkgPath() + "." + t.Name()
	}
	return t.String()
}

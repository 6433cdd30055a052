package audit

import (
	"encoding/binary"
	"hash/fnv"
	"reflect"
)

// Type describes a buffer's element type for the comparison: by the numbers in an element (MPI 4.1,
// section 3.3.1). So []float64 and [][2]float64 fit together, and so do a named type and its
// underlying type.
type Type struct {
	Name string // in Go, for messages
	Size int    // bytes of an element
	// Layout is equal for types that fit together. It is 0 for no type.
	Layout uint64
	// Kind is a digest of the layout that fits into the header of a message.
	Kind Kind
}

// Kind is a basic type, or a digest of a type that mixes several. There are 127 of them: 0 stands
// for no type.
type Kind uint8

const (
	// NoKind: the sender says nothing of the type.
	NoKind Kind = iota
	// Bytes fit everything.
	Bytes
	kindBool
	kindInt8
	kindInt16
	kindInt32
	kindInt64
	kindUint16
	kindUint32
	kindUint64
	kindFloat32
	kindFloat64
	kindComplex64
	kindComplex128
	// Digests of mixed types begin here.
	firstMixed
	// MaxKind is the last one.
	MaxKind = 127
)

var kindNames = [...]string{
	NoKind: "", Bytes: "byte", kindBool: "bool", kindInt8: "int8", kindInt16: "int16", kindInt32: "int32",
	kindInt64: "int64", kindUint16: "uint16", kindUint32: "uint32", kindUint64: "uint64",
	kindFloat32: "float32", kindFloat64: "float64", kindComplex64: "complex64", kindComplex128: "complex128",
}

// String names the slices whose elements are of this kind.
func (k Kind) String() string {
	if k < firstMixed {
		return "[]" + kindNames[k]
	}
	return "a slice of structs or arrays of another layout"
}

// Fits reports whether elements of one kind may be received as elements of another: the kinds are
// the same, or one of them is bytes or unknown.
func (k Kind) Fits(other Kind) bool {
	return k == other || k <= Bytes || other <= Bytes
}

// TypeOf describes a type that holds no pointers.
func TypeOf(t reflect.Type) Type {
	layout, kind := layoutOf(t)
	if kind == NoKind {
		kind = firstMixed + Kind(layout%uint64(MaxKind-firstMixed+1))
	}
	name := t.String()
	if kind == Bytes && t.Kind() == reflect.Uint8 && t.PkgPath() == "" {
		name = "byte"
	}
	return Type{Name: name, Size: int(t.Size()), Layout: layout, Kind: kind}
}

// None is the type of a slice without elements, which fits every other type.
func (t Type) None() Type {
	t.Layout, t.Kind = 0, NoKind
	return t
}

// String names the slices of the type.
func (t Type) String() string { return "[]" + t.Name }

// fits reports whether data may go from elements of one type to elements of the other. A reduction
// computes, so it needs the same type.
func (t Type) fits(other Type, reduces bool) bool {
	return t.Layout == other.Layout || t.Kind == NoKind || other.Kind == NoKind ||
		!reduces && (t.Kind == Bytes || other.Kind == Bytes)
}

// layoutOf is a digest of the type, and its kind. A type made of one basic type has that type's
// digest and kind.
func layoutOf(t reflect.Type) (layout uint64, kind Kind) {
	switch t.Kind() {
	case reflect.Array:
		if t.Len() == 0 {
			return digest(0), NoKind
		}
		inner, kind := layoutOf(t.Elem())
		if kind != NoKind || t.Len() == 1 {
			return inner, kind
		}
		return digest(uint64(reflect.Array), uint64(t.Len()), inner), NoKind
	case reflect.Struct:
		return layoutOfStruct(t)
	}
	kind = basicKind(t)
	return digest(uint64(kind)), kind
}

func layoutOfStruct(t reflect.Type) (layout uint64, kind Kind) {
	words, used, isUniform := []uint64{uint64(reflect.Struct)}, uintptr(0), true
	var common Kind
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type.Size() == 0 {
			continue
		}
		inner, kind := layoutOf(f.Type)
		isUniform = isUniform && kind != NoKind && (used == 0 || kind == common)
		common = kind
		words = append(words, uint64(f.Offset), inner)
		used += f.Type.Size()
	}
	switch {
	case used == 0:
		return digest(0), NoKind
	case used != t.Size(): // there are gaps
	case isUniform:
		return digest(uint64(common)), common
	case len(words) == 3: // the struct is its only field
		return words[2], NoKind
	}
	return digest(words...), NoKind
}

func digest(words ...uint64) uint64 {
	h := fnv.New64a()
	var b [8]byte
	for _, w := range words {
		binary.LittleEndian.PutUint64(b[:], w)
		h.Write(b[:])
	}
	return h.Sum64()
}

// basicKind is the kind of a type that is neither an array nor a struct. int, uint and uintptr have
// this machine's size.
func basicKind(t reflect.Type) Kind {
	sized := func(of1, of2, of4, of8 Kind) Kind {
		switch t.Size() {
		case 1:
			return of1
		case 2:
			return of2
		case 4:
			return of4
		}
		return of8
	}
	switch t.Kind() {
	case reflect.Bool:
		return kindBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return sized(kindInt8, kindInt16, kindInt32, kindInt64)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return sized(Bytes, kindUint16, kindUint32, kindUint64)
	case reflect.Float32:
		return kindFloat32
	case reflect.Float64:
		return kindFloat64
	case reflect.Complex64:
		return kindComplex64
	}
	return kindComplex128
}

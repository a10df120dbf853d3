package document

import (
	"iter"
	"reflect"
)

// Stream is a list of T whose elements are decoded one at a time, as All is
// walked: for the long lists of a large document, whose structs would otherwise
// all be in memory beside the model that is made of them. Its field has the tags
// of a list. What is wrong with the elements is reported while All is walked,
// which is therefore to be done exactly once.
type Stream[T any] struct {
	node    Node
	decoder *Decoder
	key     *Key
}

// Len returns the number of elements.
func (s Stream[T]) Len() int { return s.node.Len() }

// All yields the elements. Each is decoded into the same T: keep what it refers
// to, not the pointer.
func (s Stream[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		into := new(T)
		v := reflect.ValueOf(into).Elem()
		for element := range s.node.All() {
			v.SetZero()
			s.decoder.element(element, v, s.key)
			if !yield(into) {
				return
			}
		}
	}
}

func (s *Stream[T]) bind(d *Decoder, n Node, k *Key) { s.decoder, s.node, s.key = d, n, k }

func (*Stream[T]) elementType() reflect.Type { return reflect.TypeFor[T]() }

// stream is any Stream.
type stream interface {
	bind(d *Decoder, n Node, k *Key)
	elementType() reflect.Type
}

// elementOf returns the type of the elements of a list type, a slice or a
// Stream.
func elementOf(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Slice {
		return t.Elem(), true
	}
	if s, ok := reflect.Zero(reflect.PointerTo(t)).Interface().(stream); ok {
		return s.elementType(), true
	}
	return nil, false
}

package document

import (
	"iter"
	"reflect"
)

// Stream is a list of T whose elements are decoded one at a time during iteration of All. It is for
// long lists, whose structs would otherwise all be in memory at the same time. A Stream field has
// the tags of a list. Problems of the elements are reported during the iteration, so the caller
// must iterate All exactly once.
type Stream[T any] struct {
	node    Node
	decoder *Decoder
	key     *Key
}

// Len returns the number of elements.
func (s Stream[T]) Len() int { return s.node.Len() }

// All yields the elements. It decodes all of them into the same T: the caller may keep values that
// the T refers to, but not the pointer to the T.
func (s Stream[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		target := new(T)
		v := reflect.ValueOf(target).Elem()
		for element := range s.node.All() {
			v.SetZero()
			s.decoder.decodeElement(element, v, s.key)
			if !yield(target) {
				return
			}
		}
	}
}

func (s *Stream[T]) bind(d *Decoder, n Node, k *Key) { s.decoder, s.node, s.key = d, n, k }

func (*Stream[T]) elementType() reflect.Type { return reflect.TypeFor[T]() }

// stream is implemented by every Stream.
type stream interface {
	bind(d *Decoder, n Node, k *Key)
	elementType() reflect.Type
}

// elementOf returns the element type of a list type, which is a slice or a Stream.
func elementOf(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Slice {
		return t.Elem(), true
	}
	if s, ok := reflect.Zero(reflect.PointerTo(t)).Interface().(stream); ok {
		return s.elementType(), true
	}
	return nil, false
}

package application

import (
	"errors"
	"fmt"

	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// reader decodes the values of a body in Hessian 2: nil, bool, int64, string, []any, and
// map[string]any for maps and objects. Other scalars decode to nil, and entries whose keys are not
// texts are dropped. Package hessian decodes the scalars; reader decodes what contains them.
type reader struct {
	body    []byte
	at      int
	classes []class
	types   int
	made    []any // lists, maps and objects, indexed by references
	values  int
}

type class struct{ fields []string }

// Bounds of a body, in addition to its size.
const (
	deepest    = 64
	mostValues = 1 << 18
	mostFields = 1 << 10
)

var errHessian = errors.New("the response is not valid or supported Hessian 2")

func (r *reader) fail(what string) error {
	return fmt.Errorf("%w: %s at byte %d", errHessian, what, r.at)
}

// read consumes a value.
func (r *reader) read(depth int) (any, error) {
	if r.values++; depth > deepest || r.values > mostValues {
		return nil, r.fail("limit exceeded")
	}
	if r.at >= len(r.body) {
		return nil, r.fail("unexpected end")
	}
	tag := r.body[r.at]
	switch {
	case tag == 'C':
		if err := r.class(); err != nil {
			return nil, err
		}
		return r.read(depth + 1)
	case tag == 'O':
		r.at++
		n, err := r.int()
		if err != nil {
			return nil, err
		}
		return r.object(n, depth)
	case tag >= 0x60 && tag <= 0x6f:
		r.at++
		return r.object(int64(tag-0x60), depth)
	case tag == 'H', tag == 'M':
		r.at++
		if tag == 'M' {
			if err := r.typeName(); err != nil {
				return nil, err
			}
		}
		return r.mapping(depth)
	case tag == 'Q':
		r.at++
		n, err := r.int()
		if err != nil || n < 0 || n >= int64(len(r.made)) {
			return nil, r.fail("invalid reference")
		}
		return r.made[n], nil
	case tag >= 0x55 && tag <= 0x58, tag >= 0x70 && tag <= 0x7f:
		return r.list(tag, depth)
	}
	return r.scalar()
}

// scalar consumes a value that contains no other.
func (r *reader) scalar() (any, error) {
	var d hessian.Decoder
	d.Reset(r.body[r.at:])
	var value any
	var err error
	switch d.Kind() {
	case hessian.Bool:
		value, err = d.Bool()
	case hessian.Int, hessian.Long:
		value, err = d.Long()
	case hessian.String:
		var text []byte
		text, err = d.Text()
		value = string(text)
	case hessian.Null, hessian.Double, hessian.Date, hessian.Binary:
		err = d.Skip()
	default:
		return nil, r.fail("unknown tag")
	}
	if err != nil {
		return nil, err
	}
	r.at += d.Offset()
	return value, nil
}

func (r *reader) int() (int64, error) {
	value, err := r.scalar()
	if err != nil {
		return 0, err
	}
	n, ok := value.(int64)
	if !ok {
		return 0, r.fail("expected a number")
	}
	return n, nil
}

// typeName consumes the type of a list or a map: its name, or the number of an earlier type.
func (r *reader) typeName() error {
	value, err := r.scalar()
	if err != nil {
		return err
	}
	switch n := value.(type) {
	case string:
		r.types++
		return nil
	case int64:
		if n >= 0 && n < int64(r.types) {
			return nil
		}
	}
	return r.fail("invalid type")
}

// class consumes a class definition.
func (r *reader) class() error {
	r.at++
	if _, err := r.scalar(); err != nil { // its name
		return err
	}
	n, err := r.int()
	if err != nil {
		return err
	}
	if n < 0 || n > mostFields || len(r.classes) >= mostFields {
		return r.fail("invalid class definition")
	}
	c := class{fields: make([]string, n)}
	for i := range c.fields {
		value, err := r.scalar()
		if err != nil {
			return err
		}
		name, ok := value.(string)
		if !ok {
			return r.fail("invalid field name")
		}
		c.fields[i] = name
	}
	r.classes = append(r.classes, c)
	return nil
}

func (r *reader) object(n int64, depth int) (any, error) {
	if n < 0 || n >= int64(len(r.classes)) {
		return nil, r.fail("unknown class")
	}
	object := map[string]any{}
	r.made = append(r.made, object)
	for _, field := range r.classes[n].fields {
		value, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		object[field] = value
	}
	return object, nil
}

func (r *reader) atEnd() bool { return r.at < len(r.body) && r.body[r.at] == 'Z' }

func (r *reader) mapping(depth int) (any, error) {
	mapping := map[string]any{}
	r.made = append(r.made, mapping)
	for !r.atEnd() {
		key, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		value, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok {
			mapping[name] = value
		}
	}
	r.at++
	return mapping, nil
}

// list consumes a list. Tags from 0x55 on have a type, a length, or both. Tags from 0x70 on contain
// the length; those below 0x78 have a type.
func (r *reader) list(tag byte, depth int) (any, error) {
	const open, fixed, untyped = 0x55, 0x56, 0x57
	r.at++
	typed := tag == open || tag == fixed || tag >= 0x70 && tag < 0x78
	ended := tag == open || tag == untyped
	if typed {
		if err := r.typeName(); err != nil {
			return nil, err
		}
	}
	length := int64(tag & 7)
	if !ended && tag < 0x70 {
		var err error
		if length, err = r.int(); err != nil {
			return nil, err
		}
	}
	number := len(r.made)
	r.made = append(r.made, nil)
	list := []any{}
	for i := int64(0); ended && !r.atEnd() || !ended && i < length; i++ {
		value, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	if ended {
		r.at++
	}
	r.made[number] = list
	return list, nil
}

package application

import (
	"errors"
	"fmt"

	"github.com/weft-proxy/weft/pkg/protocol/hessian"
)

// hessianReader decodes the values of a body in Hessian 2: nil, bool, int64, string, []any, and
// map[string]any for maps and objects. Other scalars decode to nil, and entries whose keys are not
// strings are dropped. Package hessian decodes the scalars; hessianReader decodes lists, maps and
// objects.
type hessianReader struct {
	body       []byte
	offset     int
	classes    []class
	typeCount  int   // number of type names read so far
	refs       []any // lists, maps and objects, indexed by references
	valueCount int   // number of values read so far
}

type class struct{ fields []string }

// Bounds of a body, in addition to its size.
const (
	maxDepth  = 64
	maxValues = 1 << 18
	maxFields = 1 << 10
)

var errHessian = errors.New("the response is not valid or supported Hessian 2")

func (r *hessianReader) fail(reason string) error {
	return fmt.Errorf("%w: %s at byte %d", errHessian, reason, r.offset)
}

// readValue consumes a value.
func (r *hessianReader) readValue(depth int) (any, error) {
	if r.valueCount++; depth > maxDepth || r.valueCount > maxValues {
		return nil, r.fail("limit exceeded")
	}
	if r.offset >= len(r.body) {
		return nil, r.fail("unexpected end")
	}
	tag := r.body[r.offset]
	switch {
	case tag == 'C':
		if err := r.readClass(); err != nil {
			return nil, err
		}
		return r.readValue(depth + 1)
	case tag == 'O':
		r.offset++
		n, err := r.readInt()
		if err != nil {
			return nil, err
		}
		return r.readObject(n, depth)
	case tag >= 0x60 && tag <= 0x6f:
		r.offset++
		return r.readObject(int64(tag-0x60), depth)
	case tag == 'H', tag == 'M':
		r.offset++
		if tag == 'M' {
			if err := r.readTypeName(); err != nil {
				return nil, err
			}
		}
		return r.readMap(depth)
	case tag == 'Q':
		r.offset++
		n, err := r.readInt()
		if err != nil || n < 0 || n >= int64(len(r.refs)) {
			return nil, r.fail("invalid reference")
		}
		return r.refs[n], nil
	case tag >= 0x55 && tag <= 0x58, tag >= 0x70 && tag <= 0x7f:
		return r.readList(tag, depth)
	}
	return r.readScalar()
}

// readScalar consumes a value that contains no other values.
func (r *hessianReader) readScalar() (any, error) {
	var d hessian.Decoder
	d.Reset(r.body[r.offset:])
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
	r.offset += d.Offset()
	return value, nil
}

func (r *hessianReader) readInt() (int64, error) {
	value, err := r.readScalar()
	if err != nil {
		return 0, err
	}
	n, ok := value.(int64)
	if !ok {
		return 0, r.fail("expected a number")
	}
	return n, nil
}

// readTypeName consumes the type of a list or a map: its name, or the number of an earlier type.
func (r *hessianReader) readTypeName() error {
	value, err := r.readScalar()
	if err != nil {
		return err
	}
	switch n := value.(type) {
	case string:
		r.typeCount++
		return nil
	case int64:
		if n >= 0 && n < int64(r.typeCount) {
			return nil
		}
	}
	return r.fail("invalid type")
}

// readClass consumes a class definition.
func (r *hessianReader) readClass() error {
	r.offset++
	if _, err := r.readScalar(); err != nil { // its name
		return err
	}
	n, err := r.readInt()
	if err != nil {
		return err
	}
	if n < 0 || n > maxFields || len(r.classes) >= maxFields {
		return r.fail("invalid class definition")
	}
	c := class{fields: make([]string, n)}
	for i := range c.fields {
		value, err := r.readScalar()
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

func (r *hessianReader) readObject(n int64, depth int) (any, error) {
	if n < 0 || n >= int64(len(r.classes)) {
		return nil, r.fail("unknown class")
	}
	object := map[string]any{}
	r.refs = append(r.refs, object)
	for _, field := range r.classes[n].fields {
		value, err := r.readValue(depth + 1)
		if err != nil {
			return nil, err
		}
		object[field] = value
	}
	return object, nil
}

func (r *hessianReader) atEnd() bool { return r.offset < len(r.body) && r.body[r.offset] == 'Z' }

func (r *hessianReader) readMap(depth int) (any, error) {
	m := map[string]any{}
	r.refs = append(r.refs, m)
	for !r.atEnd() {
		key, err := r.readValue(depth + 1)
		if err != nil {
			return nil, err
		}
		value, err := r.readValue(depth + 1)
		if err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok {
			m[name] = value
		}
	}
	r.offset++
	return m, nil
}

// readList consumes a list. Tags from 0x70 contain the length; those below 0x78 are followed by a
// type. Of the lower tags, 0x55 and 0x56 are followed by a type, and 0x56 and 0x58 by a length.
func (r *hessianReader) readList(tag byte, depth int) (any, error) {
	const typedVariable, typedFixed, untypedVariable = 0x55, 0x56, 0x57
	r.offset++
	typed := tag == typedVariable || tag == typedFixed || tag >= 0x70 && tag < 0x78
	terminated := tag == typedVariable || tag == untypedVariable
	if typed {
		if err := r.readTypeName(); err != nil {
			return nil, err
		}
	}
	length := int64(tag & 7)
	if !terminated && tag < 0x70 {
		var err error
		if length, err = r.readInt(); err != nil {
			return nil, err
		}
	}
	index := len(r.refs)
	r.refs = append(r.refs, nil)
	list := []any{}
	for i := int64(0); terminated && !r.atEnd() || !terminated && i < length; i++ {
		value, err := r.readValue(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	if terminated {
		r.offset++
	}
	r.refs[index] = list
	return list, nil
}

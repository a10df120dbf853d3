package bootstrap

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// checkEnum checks the name or number of an enum value.
func (c *jsonChecker) checkEnum(path string, v any, d protoreflect.EnumDescriptor) bool {
	const maxListed = 8 // values to list in an error text
	values := d.Values()
	names := make([]string, values.Len())
	for i := range names {
		names[i] = string(values.Get(i).Name())
	}
	switch v := v.(type) {
	case string:
		if values.ByName(protoreflect.Name(v)) != nil {
			return true
		}
		if nearest := suggestion(v, names); nearest != "" {
			c.reject(path, "unknown value %q%s", v, nearest)
			return false
		}
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 32)
		if err == nil && values.ByNumber(protoreflect.EnumNumber(n)) != nil {
			return true
		}
	}
	if len(names) <= maxListed {
		c.reject(path, "found %s, expected %s", describeValue(v), alternatives(names))
	} else {
		c.reject(path, "found %s, expected a value of %s", describeValue(v), d.FullName())
	}
	return false
}

// canonicalValue returns the name of an enum value in its declared case, because Envoy accepts any
// case. It returns any other value unchanged.
func (c *jsonChecker) canonicalValue(v any, f protoreflect.FieldDescriptor) any {
	name, isText := v.(string)
	if !isText || f.Kind() != protoreflect.EnumKind || f.Enum().Values().ByName(protoreflect.Name(name)) != nil {
		return v
	}
	for i := range f.Enum().Values().Len() {
		if declared := string(f.Enum().Values().Get(i).Name()); strings.EqualFold(declared, name) {
			c.changed = true
			return declared
		}
	}
	return v
}

// alternatives joins names for an error text.
func alternatives(names []string) string {
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// expectedScalar returns "" if v is a value of the kind, and otherwise a description of such a
// value.
func expectedScalar(v any, kind protoreflect.Kind) string {
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	if isText {
		number = json.Number(text)
	}
	switch kind {
	case protoreflect.BoolKind:
		if _, ok := v.(bool); !ok {
			return "true or false"
		}
	case protoreflect.StringKind, protoreflect.BytesKind:
		if !isText {
			return "a string"
		}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		if _, err := number.Float64(); err != nil || !isText && !isNumber {
			return "a number"
		}
	default:
		lowest, highest := integerBounds(kind)
		n, err := number.Float64()
		if err != nil || !isText && !isNumber || n != math.Trunc(n) || n < lowest || n > highest {
			return fmt.Sprintf("a whole number from %.0f to %.0f", lowest, highest)
		}
	}
	return ""
}

// integerBounds returns the bounds of an integer kind.
func integerBounds(kind protoreflect.Kind) (lowest, highest float64) {
	switch kind {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return 0, math.MaxUint32
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return 0, math.MaxUint64
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return math.MinInt64, math.MaxInt64
	default:
		return math.MinInt32, math.MaxInt32
	}
}

// isDuration reports whether text is the JSON form of a Duration: seconds, and no other unit.
func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil && strings.HasSuffix(text, "s") && strings.Trim(text, "+-.0123456789") == "s"
}

// describeValue describes a value for an error text.
func describeValue(v any) string {
	const maxLength = 40 // bytes
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		return "the number " + v.String()
	case string:
		if strings.Contains(v, "PRIVATE KEY-----") {
			return "a string"
		}
		if len(v) > maxLength {
			v = strings.ToValidUTF8(v[:maxLength], "") + "…"
		}
		return "the string " + strconv.Quote(v)
	case []any:
		return "a list"
	}
	return "an object"
}

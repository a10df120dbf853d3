package resource

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
)

// runtimeNumberText returns a number with at most six significant digits, as Envoy prints it.
func runtimeNumberText(n float64) string { return strconv.FormatFloat(n, 'g', 6, 64) }

// runtimeFractionText returns a fraction in the text format of Protocol Buffers, which Envoy prints
// after a line with a changing marker.
func runtimeFractionText(s *structpb.Struct) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.GetFields())) {
		var value string
		switch v := s.GetFields()[name].GetKind().(type) {
		case *structpb.Value_NumberValue:
			value = "number_value: " + runtimeNumberText(v.NumberValue)
		case *structpb.Value_StringValue:
			value = "string_value: " + strconv.Quote(v.StringValue)
		default:
			continue // readFraction rejects the field if it has a meaning
		}
		fmt.Fprintf(&b, "fields {\n  key: %q\n  value {\n    %s\n  }\n}\n", name, value)
	}
	return b.String()
}

package bootstrap

import (
	"encoding/json"
	"strconv"
	"strings"
)

// dropFollowUpErrors returns the errors in late that are not consequences of errors in early. The
// consequences of an error in a field are the errors of the field, of the object that contains the
// field, and of missing fields in either of them. isSet reports whether the file sets a field.
func dropFollowUpErrors(early, late FieldErrors, isSet func(field string) bool) (kept FieldErrors) {
	affected := map[string]bool{}
	for _, e := range early {
		affected[e.Field], affected[parentField(e.Field)] = true, true
	}
	for _, e := range late {
		if !affected[e.Field] && (!affected[parentField(e.Field)] || isSet(e.Field)) {
			kept = append(kept, e)
		}
	}
	return kept
}

// parentField returns the field that contains a field.
func parentField(field string) string {
	if strings.HasSuffix(field, "]") {
		return field[:max(0, strings.LastIndexByte(field, '['))]
	}
	return field[:max(0, strings.LastIndexByte(field, '.'))]
}

// fieldLookup returns a function that reports whether data, the JSON of field, sets the field
// inner. If data is not JSON, the function returns true.
func fieldLookup(field string, data []byte) func(inner string) bool {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return func(string) bool { return true }
	}
	return func(inner string) bool {
		rest, ok := strings.CutPrefix(inner, field)
		current := v
		for ok && rest != "" {
			var step string
			if rest[0] == '[' {
				step, rest, _ = strings.Cut(rest[1:], "]")
			} else {
				rest = strings.TrimPrefix(rest, ".")
				end := strings.IndexAny(rest, ".[")
				if end < 0 {
					end = len(rest)
				}
				step, rest = rest[:end], rest[end:]
			}
			switch container := current.(type) {
			case []any:
				i, err := strconv.Atoi(step)
				if ok = err == nil && i < len(container); ok {
					current = container[i]
				}
			case map[string]any:
				if current, ok = container[step]; !ok {
					current, ok = container[lowerCamel(step)]
				}
			default:
				ok = false
			}
		}
		return ok
	}
}

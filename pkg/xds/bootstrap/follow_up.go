package bootstrap

import (
	"encoding/json"
	"strconv"
	"strings"
)

// dropFollowUpErrors returns those of late that are not consequences of early. A consequence is an
// error of a field that contains a field of early, or of a missing field next to one. given reports
// whether the file has a field.
func dropFollowUpErrors(early, late FieldErrors, given func(field string) bool) (kept FieldErrors) {
	around := map[string]bool{}
	for _, p := range early {
		around[p.Field], around[parentField(p.Field)] = true, true
	}
	for _, p := range late {
		if !around[p.Field] && (!around[parentField(p.Field)] || given(p.Field)) {
			kept = append(kept, p)
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

// fieldLookup returns a function that reports whether the JSON at field has an inner field.
func fieldLookup(field string, data []byte) func(inner string) bool {
	var v any
	if json.Unmarshal(data, &v) != nil {
		return func(string) bool { return true }
	}
	return func(inner string) bool {
		rest, ok := strings.CutPrefix(inner, field)
		at := v
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
			switch in := at.(type) {
			case []any:
				i, err := strconv.Atoi(step)
				if ok = err == nil && i < len(in); ok {
					at = in[i]
				}
			case map[string]any:
				if at, ok = in[step]; !ok {
					at, ok = in[lowerCamel(step)]
				}
			default:
				ok = false
			}
		}
		return ok
	}
}

package document

import (
	"fmt"
	"strings"
)

// expand replaces ${NAME} and ${NAME:-default} in a text; "$${" is a literal "${". As in a shell,
// the default applies if the variable is unset or empty. It may be empty and cannot contain "}".
// The second result describes the first problem; "": none.
func expand(text string, env Lookup) (string, string) {
	var out strings.Builder
	problem := ""
	for {
		start := strings.Index(text, "${")
		if start < 0 {
			out.WriteString(text)
			return out.String(), problem
		}
		if start > 0 && text[start-1] == '$' {
			out.WriteString(text[:start-1])
			out.WriteString("${")
			text = text[start+2:]
			continue
		}
		out.WriteString(text[:start])
		body, rest, ok := strings.Cut(text[start+2:], "}")
		if !ok {
			return out.String(), `"${" has no closing "}": write "$${" for a literal "${"`
		}
		value, refProblem := resolve(body, env)
		if refProblem != "" && problem == "" {
			problem = refProblem
		}
		out.WriteString(value)
		text = rest
	}
}

// resolve returns the value of one reference without its braces.
func resolve(body string, env Lookup) (value, problem string) {
	name, fallback, hasDefault := strings.Cut(body, ":-")
	if !isVariableName(name) {
		return "", fmt.Sprintf(`"${%s}" does not contain a valid environment variable name: write "$${" for a literal "${"`, body)
	}
	value, set := env(name)
	switch {
	case hasDefault && (!set || value == ""):
		return fallback, ""
	case !set && !hasDefault:
		return "", fmt.Sprintf(`the environment variable %s is not set: set it, or add a default with "${%s:-…}"`, name, name)
	}
	return value, ""
}

func isVariableName(s string) bool {
	for i, c := range []byte(s) {
		isLetter := c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !isLetter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

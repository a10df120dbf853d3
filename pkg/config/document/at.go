package document

import (
	"iter"
	"strconv"
	"strings"
)

// At returns the innermost existing value on a path such as "listeners[0].address", which begins at
// root. Names may be in snake_case or lowerCamelCase, whichever the document has.
func At(root Node, path string) Node {
	node := root
	for step := range pathSteps(path) {
		next := childAt(node, step)
		if !next.Exists() && step == "[0]" && node.Kind() != Array {
			continue // protobuf's JSON form of a list with one element may be the element
		}
		if !next.Exists() {
			break
		}
		node = next
	}
	return node
}

// pathSteps yields the steps of a path. The steps of "a.b[0][x.y]" are a, b, [0] and [x.y].
func pathSteps(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for path != "" {
			end := strings.IndexAny(path[1:], ".[") + 1
			if path[0] == '[' {
				end = strings.IndexByte(path, ']') + 1
			}
			if end <= 0 {
				end = len(path)
			}
			if !yield(path[:end]) {
				return
			}
			path = strings.TrimPrefix(path[end:], ".")
		}
	}
}

// childAt returns the value at one step of a path: a member, possibly in brackets, or the element
// "[0]" of a list.
func childAt(node Node, step string) Node {
	index, ok := strings.CutPrefix(step, "[")
	if !ok {
		return node.Get(step).Or(node.Get(lowerCamel(step))) // the path may use the other spelling of the key
	}
	index = strings.TrimSuffix(index, "]")
	if node.Kind() == Object {
		return node.Get(index)
	}
	remaining, err := strconv.Atoi(index)
	if err != nil || node.Kind() != Array {
		return Node{}
	}
	for element := range node.All() {
		if remaining == 0 {
			return element
		}
		remaining--
	}
	return Node{}
}

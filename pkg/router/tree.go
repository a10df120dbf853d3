package router

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// tree contains the exact and prefix paths of all virtual hosts, each host below its own root. It
// is a radix tree in one slice, so that 50,000 paths are one object for the garbage collector.
type tree struct {
	nodes []node
	keys  []byte // the first byte of each node's label; siblings are adjacent
}

// node represents the path that the labels from its root to it form.
type node struct {
	label      string // empty only at a root
	firstChild int32  // index of its first child
	childCount int32  // number of children
	prefix     int32  // chain of the routes whose prefix is its path
	exact      int32  // chain of the routes for exactly its path
}

// child returns the child of n whose label is a prefix of rest, nil if there is none. rest must not
// be empty.
func (t *tree) child(n *node, rest string) *node {
	i := bytes.IndexByte(t.keys[n.firstChild:n.firstChild+n.childCount], rest[0])
	if i < 0 {
		return nil
	}
	c := &t.nodes[int(n.firstChild)+i]
	if !strings.HasPrefix(rest, c.label) {
		return nil
	}
	return c
}

// pathEntry is the path of one route to add to a tree.
type pathEntry struct {
	path  string
	exact bool
	route int32 // index of the route in its virtual host
}

// add builds a separate tree from entries, which are routes of ri, and returns its root. It sorts
// entries.
func (t *tree) add(entries []pathEntry, ri *routeIndex) int32 {
	slices.SortFunc(entries, func(a, b pathEntry) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		return cmp.Compare(b.route, a.route) // descending: see prepend
	})
	root := t.addNodes(1)
	t.build(root, entries, 0, ri)
	return root
}

// addNodes appends n adjacent nodes and returns the index of the first.
func (t *tree) addNodes(n int) int32 {
	first := len(t.nodes)
	for range n {
		t.nodes = append(t.nodes, node{prefix: endOfChain, exact: endOfChain})
		t.keys = append(t.keys, 0)
	}
	return int32(first)
}

// build builds the subtree of the node at index parent. The path of the node is the first depth
// bytes of each entry's path.
func (t *tree) build(parent int32, entries []pathEntry, depth int, ri *routeIndex) {
	n := &t.nodes[parent]
	for len(entries) > 0 && len(entries[0].path) == depth {
		if e := entries[0]; e.exact {
			ri.prepend(&n.exact, e.route)
		} else {
			ri.prepend(&n.prefix, e.route)
		}
		entries = entries[1:]
	}
	childCount := 0
	for i := range entries {
		if i == 0 || entries[i].path[depth] != entries[i-1].path[depth] {
			childCount++
		}
	}
	child := t.addNodes(childCount) // moves the nodes: n is stale
	t.nodes[parent].firstChild, t.nodes[parent].childCount = child, int32(childCount)

	for c := child; len(entries) > 0; c++ {
		firstPath := entries[0].path
		end := 1
		for end < len(entries) && entries[end].path[depth] == firstPath[depth] {
			end++
		}
		// The entries are sorted: a prefix of the first and the last is a prefix of all.
		labelEnd := depth + commonPrefixLen(firstPath[depth:], entries[end-1].path[depth:])
		t.nodes[c].label = firstPath[depth:labelEnd]
		t.keys[c] = firstPath[depth]
		t.build(c, entries[:end], labelEnd, ri)
		entries = entries[end:]
	}
}

// commonPrefixLen returns the length of the common prefix of a and b.
func commonPrefixLen(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

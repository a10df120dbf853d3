package layers

import "github.com/weft-proxy/weft/pkg/config"

// File holds the resources that a file defines. It is not safe for concurrent use.
type File struct {
	snapshot *config.Snapshot // immutable
	defined  map[resource]bool
}

type resource struct {
	kind Kind
	name string
}

// NewFile returns the resources of file. The caller must not change file afterwards.
func NewFile(file *config.Snapshot) *File { return &File{snapshot: file} }

// Owner implements Layer.Owner.
func (f *File) Owner(kind Kind, name string) string {
	if f.defined == nil {
		f.defined = map[resource]bool{}
		for kind, name := range f.names {
			f.defined[resource{kind, name}] = true
		}
	}
	if f.defined[resource{kind, name}] {
		return "the file"
	}
	return ""
}

// names yields the type and name of each resource.
func (f *File) names(yield func(Kind, string) bool) {
	for _, c := range f.snapshot.Clusters {
		if !yield(Cluster, c.Name) {
			return
		}
	}
	for _, l := range f.snapshot.Listeners {
		if !yield(Listener, l.Name) {
			return
		}
	}
	for _, t := range f.snapshot.Routes {
		if !yield(RouteTable, t.Name) {
			return
		}
	}
}

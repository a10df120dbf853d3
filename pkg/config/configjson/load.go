package configjson

import (
	"io/fs"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// Options configure how a file is read. The zero value reads files and environment of the operating
// system and rejects unknown keys.
type Options struct {
	// Lenient turns unknown keys from errors into warnings.
	Lenient bool
	// Lint adds warnings about valid settings that are probably mistakes.
	Lint bool
	// Env looks up the variables in ${NAME}; nil: os.LookupEnv.
	Env document.Lookup
	// Files provides the file and its directories; nil: the operating system.
	Files Files
}

// Files reads files and lists directories. Names have the form of the operating system.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadDir(name string) ([]fs.DirEntry, error)
}

// File is a valid configuration with its documents.
type File struct {
	Snapshot *config.Snapshot

	documents []source
}

// source is a document: the main file, or a file of a directory that it refers to.
type source struct {
	name string
	root document.Node
}

// Redacted returns the documents as one indented JSON object with a member for each file; its key
// is the name of the file. Secrets and the values of environment variables are omitted.
func (f *File) Redacted() []byte {
	out := []byte("{")
	for i, s := range f.documents {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, '\n')
		out = document.AppendString(out, s.name)
		out = append(out, ": "...)
		out = append(out, strings.TrimSuffix(string(document.Redact(s.root)), "\n")...)
	}
	return append(out, "\n}\n"...)
}

// Load reads a file and returns its snapshot, or nil if the diagnostics contain an error. Warnings
// do not prevent a snapshot.
func Load(path string, caps Capabilities, o Options) (*config.Snapshot, document.Diagnostics) {
	f, diags := Open(path, caps, o)
	return f.snapshot(), diags
}

// Parse is Load for data that the caller has read; name is the file name for diagnostics. Parse
// reads the files and directories that data refers to from o.Files. Their paths are relative to the
// working directory or, if they cannot be read there, to the directory of name.
func Parse(name string, data []byte, caps Capabilities, o Options) (*config.Snapshot, document.Diagnostics) {
	r := newReader(name, caps, o)
	f := r.read(data)
	return f.snapshot(), r.report.Diagnostics()
}

// Open is Load for callers that also print the documents, which the File keeps in memory.
func Open(path string, caps Capabilities, o Options) (*File, document.Diagnostics) {
	r := newReader(path, caps, o)
	data, err := r.files.ReadFile(path)
	if err != nil {
		r.report.Add(document.Diagnostic{File: path, Problem: fileProblem(err)})
		return nil, r.report.Diagnostics()
	}
	f := r.read(data)
	return f, r.report.Diagnostics()
}

func (f *File) snapshot() *config.Snapshot {
	if f == nil {
		return nil
	}
	return f.Snapshot
}

// read converts the main document to a File. It returns nil if it has reported an error.
func (r *reader) read(data []byte) *File {
	root := r.parseDocument(r.file, data)
	if root.Exists() {
		var j rootJSON
		r.decoder.Decode(root, &j)
		r.readRoot(&j)
		if r.lintEnabled && r.report.Errors() == 0 {
			l := linter{r.input, r.clusters, r.routes}
			l.lint(root)
		}
	}
	if r.report.Errors() > 0 {
		return nil
	}
	return &File{Snapshot: &r.snapshot, documents: r.documents}
}

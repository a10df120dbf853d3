package configjson

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/filter"
)

// Options configure how a file is read. The zero value reads files and environment of the operating
// system and rejects unknown keys.
type Options struct {
	// Lenient turns unknown keys from errors into warnings.
	Lenient bool
	// Lint adds warnings of valid settings that are probably mistakes.
	Lint bool
	// Env returns the values of ${NAME}; nil: os.LookupEnv.
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

// source is one document of a File.
type source struct {
	name string
	root document.Node
}

// Redacted returns the documents as one indented JSON object with a member for each file, by its
// name. Secrets and the values of environment variables are omitted.
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
func Load(path string, k Capabilities, o Options) (*config.Snapshot, document.Diagnostics) {
	f, diags := Open(path, k, o)
	return f.snapshot(), diags
}

// Parse converts the contents of a file. Directories that it refers to are read from o.Files,
// relative to the working directory, else to the directory of name.
func Parse(name string, data []byte, k Capabilities, o Options) (*config.Snapshot, document.Diagnostics) {
	r := newReader(name, k, o)
	f := r.read(data)
	return f.snapshot(), r.report.Diagnostics()
}

// Open is Load for callers that also print the documents. A File keeps the documents in memory.
func Open(path string, k Capabilities, o Options) (*File, document.Diagnostics) {
	r := newReader(path, k, o)
	data, err := r.files.ReadFile(path)
	if err != nil {
		r.report.Add(document.Diagnostic{File: path, Problem: readProblem(err)})
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

// readProblem returns the reason why a file cannot be read, without the file name, which the
// diagnostic contains.
func readProblem(err error) string {
	var inner *fs.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	return "cannot be read: " + err.Error()
}

type osFiles struct{}

func (osFiles) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }
func (osFiles) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// reader reads one file. One goroutine uses it.
type reader struct {
	file         string
	capabilities Capabilities
	env          document.Lookup
	files        Files
	report       *document.Report
	decoder      *document.Decoder

	documents      []source
	snapshot       config.Snapshot
	filters        map[string]*filter.StreamFilterFactory
	clusters       map[string]*config.Cluster
	staticClusters map[string]bool // clusters of static_resources, by name
	tables         map[string]*table
	proxies        []proxyNode
	addresses      map[string]bool      // of the cluster that is being converted
	references     []document.Reference // in the filter settings that are being decoded

	lintEnabled        bool
	hasDynamicClusters bool // a control plane or a registry may add clusters

	managerTLS *config.TLS // cluster_manager's tls_context; nil: absent or disabled
}

func newReader(file string, k Capabilities, o Options) *reader {
	r := &reader{
		file: file, capabilities: k, env: o.Env, files: o.Files,
		report:   &document.Report{},
		filters:  make(map[string]*filter.StreamFilterFactory, len(k.StreamFilters)),
		clusters: map[string]*config.Cluster{}, staticClusters: map[string]bool{},
		tables: map[string]*table{}, addresses: map[string]bool{},
		lintEnabled: o.Lint,
	}
	if r.env == nil {
		r.env = os.LookupEnv
	}
	if r.files == nil {
		r.files = osFiles{}
	}
	r.decoder = document.NewDecoder(r.report)
	r.decoder.Lenient = o.Lenient
	r.decoder.OnReference = func(ref document.Reference) { r.references = append(r.references, ref) }
	for i := range k.StreamFilters {
		r.filters[k.StreamFilters[i].Name] = &k.StreamFilters[i]
	}
	return r
}

// read converts the main document to a File; nil after an error.
func (r *reader) read(data []byte) *File {
	root := r.document(r.file, data)
	if root.Exists() {
		var j rootJSON
		r.decoder.Decode(root, &j)
		r.readRoot(&j)
		if r.lintEnabled && r.report.Errors() == 0 {
			r.lint(root)
		}
	}
	if r.report.Errors() > 0 {
		return nil
	}
	return &File{Snapshot: &r.snapshot, documents: r.documents}
}

// document parses one document. If it returns an absent node, it has reported an error.
func (r *reader) document(name string, data []byte) document.Node {
	before := r.report.Errors()
	root := document.Parse(name, data, document.Options{Env: r.env}, r.report)
	if !root.Exists() && r.report.Errors() == before {
		r.report.Add(document.Diagnostic{File: name, Line: 1, Column: 1, Problem: "the document is empty"})
	}
	r.documents = append(r.documents, source{name, root})
	return root
}

// directory parses the documents of a directory in the order of their names. at is the node with
// the directory.
func (r *reader) directory(at document.Node, dir string) []document.Node {
	entries, err := r.files.ReadDir(dir)
	if err != nil && !filepath.IsAbs(dir) {
		beside := filepath.Join(filepath.Dir(r.file), dir)
		if list, errBeside := r.files.ReadDir(beside); errBeside == nil {
			dir, entries, err = beside, list, nil
		}
	}
	if err != nil {
		r.report.Errorf(at, "the directory %q %s", dir, readProblem(err))
		return nil
	}
	var roots []document.Node
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".json", ".jsonc", ".hujson", ".yaml", ".yml":
		default:
			continue // other files, such as notes and editor backups
		}
		name := filepath.Join(dir, e.Name())
		data, err := r.files.ReadFile(name)
		if err != nil {
			r.report.Add(document.Diagnostic{File: name, Problem: readProblem(err)})
			continue
		}
		if root := r.document(name, data); root.Exists() {
			roots = append(roots, root)
		}
	}
	if len(roots) == 0 {
		r.report.Warnf(at, "the directory %q contains no .json or .yaml file", dir)
	}
	return roots
}

package configjson

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/weft-proxy/weft/pkg/config/document"
	"github.com/weft-proxy/weft/pkg/protocol/variable"
)

// input contains what the readers of all sections share: the file, the supported features, and the
// report. A reader reports a problem and continues; the caller of newInput uses the result only if
// the report contains no error.
type input struct {
	file         string // name of the file
	capabilities Capabilities
	env          document.Lookup
	files        Files
	report       *document.Report
	decoder      *document.Decoder
	documents    []source // of the file, and of the directories that it refers to
	lintEnabled  bool
}

func newInput(file string, caps Capabilities, o Options) *input {
	in := &input{file: file, capabilities: caps, env: o.Env, files: o.Files, report: &document.Report{}, lintEnabled: o.Lint}
	if in.env == nil {
		in.env = os.LookupEnv
	}
	if in.files == nil {
		in.files = osFiles{}
	}
	in.decoder = document.NewDecoder(in.report)
	in.decoder.Lenient = o.Lenient
	return in
}

// parseDocument parses one document. It reports an error if it returns an absent node.
func (in *input) parseDocument(name string, data []byte) document.Node {
	errorsBefore := in.report.Errors()
	root := document.Parse(name, data, document.Options{Env: in.env}, in.report)
	if !root.Exists() && in.report.Errors() == errorsBefore {
		in.report.Add(document.Diagnostic{File: name, Line: 1, Column: 1, Problem: "the document is empty"})
	}
	in.documents = append(in.documents, source{name, root})
	return root
}

// parseDirectory parses the documents of a directory in the order of their names. node contains the
// name of the directory.
func (in *input) parseDirectory(node document.Node, dir string) []document.Node {
	dir, entries, err := readRelative(in.file, dir, in.files.ReadDir)
	if err != nil {
		in.report.Errorf(node, "the directory %q %s", dir, fileProblem(err))
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
		data, err := in.files.ReadFile(name)
		if err != nil {
			in.report.Add(document.Diagnostic{File: name, Problem: fileProblem(err)})
			continue
		}
		if root := in.parseDocument(name, data); root.Exists() {
			roots = append(roots, root)
		}
	}
	if len(roots) == 0 {
		in.report.Warnf(node, "the directory %q contains no .json or .yaml file", dir)
	}
	return roots
}

// readRelative reads path, which the configuration in file refers to. It reads a relative path in
// the working directory first, then in the directory of file. found is the path that it has read.
// After an error found is path, and err is the error of the working directory.
func readRelative[T any](file, path string, read func(name string) (T, error)) (found string, content T, err error) {
	content, err = read(path)
	if err == nil || filepath.IsAbs(path) {
		return path, content, err
	}
	sibling := filepath.Join(filepath.Dir(file), path)
	if siblingContent, siblingErr := read(sibling); siblingErr == nil {
		return sibling, siblingContent, nil
	}
	return path, content, err
}

// fileProblem returns the reason why a file cannot be read, without the file name, which the
// diagnostic contains.
func fileProblem(err error) string {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return "cannot be read: " + err.Error()
}

// checkRegex reports an invalid regular expression.
func (in *input) checkRegex(n document.Node, key, text string) {
	if _, err := regexp.Compile(text); err != nil {
		in.report.Errorf(n.Get(key).Or(n), "not a valid regular expression (RE2): %v", err)
	}
}

// checkTemplate reports an invalid text with %variables%.
func (in *input) checkTemplate(node document.Node, text string) {
	if _, err := variable.Compile(text); err != nil {
		in.report.Errorf(node, "%v", err)
	}
}

// checkVariable reports an unknown variable.
func (in *input) checkVariable(n document.Node, key, name string) {
	if _, ok := variable.Lookup(name); ok || name == "" {
		return // an empty name has been reported
	}
	var known []string
	for name := range variable.Names() {
		known = append(known, name)
	}
	in.report.Unknown(n.Get(key).Or(n), "variable", name, known)
}

type osFiles struct{}

func (osFiles) ReadFile(name string) ([]byte, error) { return os.ReadFile(name) }

func (osFiles) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

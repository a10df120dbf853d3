package corpora

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// object is a mapping of YAML or JSON.
type object = map[string]any

// config is one configuration of a corpus.
type config struct {
	name string // relative to the checkout, such as "configs/a.yaml"
	dir  string // directory of the files to which the configuration may refer
	ext  string // ".yaml" or ".json"
	text []byte
}

// corpus is a collection of public configurations.
type corpus struct {
	name, title string
	dir         string // of the checkout, in the directory of all checkouts
	isMOSN      bool
	find        func(checkout string) ([]config, error)
}

// corpora returns all corpora. test/scripts/corpora lists where the checkouts come from.
func corpora() []corpus {
	return []corpus{
		{name: "examples", title: "Envoy: examples", dir: "examples", find: func(dir string) ([]config, error) {
			return findBootstraps(dir, ".")
		}},
		{name: "docs", title: "Envoy: configs and docs", dir: "envoy", find: func(dir string) ([]config, error) {
			return findBootstraps(dir, "configs", "docs")
		}},
		{name: "gateway", title: "Envoy Gateway: golden xDS", dir: "gateway", find: func(dir string) ([]config, error) {
			return findGroups(dir, filepath.Join("internal", "xds", "translator", "testdata", "out", "xds-ir"))
		}},
		{name: "istio", title: "Istio: golden bootstraps", dir: "istio", find: func(dir string) ([]config, error) {
			return findBootstraps(dir, filepath.Join("pkg", "bootstrap", "testdata"))
		}},
		{name: "contour", title: "Contour: bootstraps of its tests", dir: "contour", find: func(dir string) ([]config, error) {
			return findLiterals(dir, filepath.Join("internal", "envoy", "v3", "bootstrap_test.go"))
		}},
		{name: "mosn", title: "MOSN: configs and examples", dir: "mosn", isMOSN: true, find: func(dir string) ([]config, error) {
			return findMOSN(dir, "configs", "examples")
		}},
	}
}

// bootstrapKey matches the beginning of a bootstrap in YAML or JSON.
var bootstrapKey = regexp.MustCompile(`(?m)(?:^|\{)\s*"?(?:static_resources|dynamic_resources|staticResources|dynamicResources)"?\s*:`)

// mosnKey matches a configuration of MOSN.
var mosnKey = regexp.MustCompile(`"(servers|static_resources|stream_filters)"\s*:`)

// findBootstraps returns the files with a bootstrap in directories of a checkout.
func findBootstraps(checkout string, dirs ...string) (found []config, err error) {
	return findFiles(checkout, dirs, func(path string, text []byte) bool {
		return !strings.Contains(path, ".template.") && bootstrapKey.Match(text)
	}, ".yaml", ".json")
}

// findMOSN returns the configurations of MOSN in directories of a checkout.
func findMOSN(checkout string, dirs ...string) (found []config, err error) {
	return findFiles(checkout, dirs, func(_ string, text []byte) bool { return mosnKey.Match(text) }, ".json")
}

// findFiles returns the files with one of the extensions that accept accepts, sorted by name.
func findFiles(checkout string, dirs []string, accept func(path string, text []byte) bool, extensions ...string) (found []config, err error) {
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(checkout, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains(extensions, filepath.Ext(path)) || strings.HasPrefix(d.Name(), "docker-compose") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !accept(path, text) {
				return err
			}
			name, err := filepath.Rel(checkout, path)
			found = append(found, config{name: name, dir: filepath.Dir(path), ext: filepath.Ext(path), text: text})
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return found, nil
}

// findGroups returns a bootstrap for each group of files NAME.listeners.yaml, NAME.routes.yaml,
// NAME.clusters.yaml, NAME.endpoints.yaml and NAME.secrets.yaml.
func findGroups(checkout, dir string) (found []config, err error) {
	listeners, err := filepath.Glob(filepath.Join(checkout, dir, "*.listeners.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range listeners {
		base := strings.TrimSuffix(path, ".listeners.yaml")
		var g group
		for _, part := range []struct {
			kind string
			list *[]any
		}{
			{"listeners", &g.listeners}, {"routes", &g.routes}, {"clusters", &g.clusters}, {"endpoints", &g.endpoints}, {"secrets", &g.secrets},
		} {
			text, err := os.ReadFile(base + "." + part.kind + ".yaml")
			if errors.Is(err, fs.ErrNotExist) {
				continue
			} else if err != nil {
				return nil, err
			}
			if err := yaml.Unmarshal(text, part.list); err != nil {
				return nil, fmt.Errorf("%s.%s.yaml: %w", base, part.kind, err)
			}
		}
		text, err := json.MarshalIndent(g.bootstrap(), "", " ")
		if err != nil {
			return nil, err
		}
		found = append(found, config{name: filepath.Base(base), dir: filepath.Dir(path), ext: ".json", text: text})
	}
	return found, nil
}

// findLiterals returns the string literals of a Go file that are bootstraps. Contour keeps its
// golden files in its tests.
func findLiterals(checkout, file string) (found []config, err error) {
	path := filepath.Join(checkout, file)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err == nil && bootstrapKey.MatchString(text) && json.Valid([]byte(text)) {
			found = append(found, config{name: fmt.Sprintf("%s %d", file, len(found)+1), dir: filepath.Dir(path), ext: ".json", text: []byte(text)})
		}
		return true
	})
	return found, nil
}

package archtest

import (
	"fmt"
	"go/build/constraint"
	"go/token"
	"io/fs"
	"path"
	"slices"
)

// This file lists the packages of this module that the weft binary contains, as data. The binary
// must not contain test support and tools.

// command is the directory of the weft command.
const command = "cmd/weft"

// binaryPackages lists the directories of the packages that command may import, directly or not, as
// path.Match patterns.
func binaryPackages() []string {
	return []string{
		"configs",
		"internal/admin", "internal/align", "internal/demand", "internal/hash", "internal/httpport", "internal/invariants", "internal/logfile",
		"internal/metrics", "internal/resource", "internal/run", "internal/swar", "internal/unixaddr", "internal/unixsocket",
		"pkg/buffer",
		"pkg/config", "pkg/config/configjson", "pkg/config/document",
		"pkg/dubbo", "pkg/dubbo/api", "pkg/dubbo/application", "pkg/dubbo/plan", "pkg/dubbo/rules",
		"pkg/filter", "pkg/filter/coding", "pkg/filter/match", "pkg/filter/network/*", "pkg/filter/stream/*",
		"pkg/inspect",
		"pkg/layers",
		"pkg/network", "pkg/network/credential",
		"pkg/protocol", "pkg/protocol/detect", "pkg/protocol/hessian", "pkg/protocol/http1", "pkg/protocol/http2", "pkg/protocol/proxyproto",
		"pkg/protocol/urlpath", "pkg/protocol/variable", "pkg/protocol/workload",
		"pkg/protocol/xprotocol", "pkg/protocol/xprotocol/bolt", "pkg/protocol/xprotocol/dubbo",
		"pkg/proxy", "pkg/proxy/accesslog", "pkg/proxy/explain", "pkg/proxy/overload", "pkg/proxy/overload/trigger", "pkg/proxy/pipeline", "pkg/proxy/service",
		"pkg/registry", "pkg/registry/memory", "pkg/registry/nacos", "pkg/registry/zookeeper",
		"pkg/router", "pkg/router/chainmatch", "pkg/router/exchangefilter", "pkg/router/headermatch",
		"pkg/stream", "pkg/stream/http1", "pkg/stream/http2", "pkg/stream/xprotocol",
		"pkg/upstream", "pkg/upstream/balance", "pkg/upstream/breaker", "pkg/upstream/discovery/dns", "pkg/upstream/health", "pkg/upstream/hosthealth",
		"pkg/upstream/outlier", "pkg/upstream/pool", "pkg/upstream/share", "pkg/upstream/subset", "pkg/upstream/tasks", "pkg/upstream/wait",
	}
}

// binaryPackagesXDS lists the further packages of a build without the tag noxds.
func binaryPackagesXDS() []string {
	return []string{"pkg/xds", "pkg/xds/*"}
}

// Maximum size of the stripped binary on amd64, in bytes: 3 % above its size when the budget was
// set, which the comments give.
const (
	sizeBudget      = 41_024_000 // 39,829,769
	sizeBudgetNoXDS = 23_136_000 // 22,462,729
)

// CheckBinary reads the Go module whose root is fsys. For the builds with and without xDS it
// returns a problem for each package that command imports although it is not listed, and for each
// entry that matches no imported package.
func CheckBinary(fsys fs.FS) (problems []string, err error) {
	tree, err := load(fsys)
	if err != nil {
		return nil, err
	}
	for tag, allowed := range map[string][]string{"": slices.Concat(binaryPackages(), binaryPackagesXDS()), "noxds": binaryPackages()} {
		used := map[string]bool{}
		for dir, from := range tree.importsOf(command, tag) {
			i := slices.IndexFunc(allowed, func(pattern string) bool { matched, _ := path.Match(pattern, dir); return matched })
			switch {
			case i >= 0:
				used[allowed[i]] = true
			case dir != command:
				problems = append(problems, fmt.Sprintf("tag %q: %s imports %s: keep it out of the binary, or add it to internal/archtest/binary.go", tag, from, dir))
			}
		}
		for _, pattern := range allowed {
			if !used[pattern] {
				problems = append(problems, fmt.Sprintf("tag %q: the binary has no package %s: remove it from internal/archtest/binary.go", tag, pattern))
			}
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// importsOf returns the directories of root and of the packages of this module that it imports,
// directly or not. The value is the directory of a package that imports the key.
func (t *tree) importsOf(root, tag string) map[string]string {
	byDir := map[string][]*pkg{}
	for _, p := range t.packages {
		byDir[p.dir] = append(byDir[p.dir], p)
	}
	importers := map[string]string{root: root}
	for queue := []string{root}; len(queue) > 0; queue = queue[1:] {
		for _, p := range byDir[queue[0]] {
			for f := range p.nonTestFiles {
				if !f.isBuilt(tag) {
					continue
				}
				f.imports(func(importPath string, _ token.Pos) bool {
					dir, inModule := p.moduleDir(importPath)
					if _, seen := importers[dir]; inModule && !seen {
						importers[dir] = p.dir
						queue = append(queue, dir)
					}
					return true
				})
			}
		}
	}
	return importers
}

// isBuilt reports whether a build for Linux with the tag includes f, by its build constraint.
func (f *file) isBuilt(tag string) bool {
	for _, group := range f.syntax.Comments {
		if group.Pos() > f.syntax.Package {
			break
		}
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			expression, err := constraint.Parse(c.Text)
			return err == nil && expression.Eval(func(term string) bool { return term == tag || term == "linux" || term == "unix" })
		}
	}
	return true
}

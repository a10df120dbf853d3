package archtest

// This file holds the architecture as data. Change it together with docs/ARCHITECTURE.md and a
// decision in docs/decisions.

// packageTree is a directory tree in one layer. A package may import packages of its own tree and
// of trees in lower layers.
type packageTree struct {
	dir   string
	layer int
}

// packageTrees lists the package trees. A package belongs to the innermost tree that contains it.
func packageTrees() []packageTree {
	return []packageTree{
		{"cmd", 7},
		{"test", 7}, // imports what it tests; nothing imports it
		{"pkg/inspect", 6},
		{"pkg/xds", 5},
		{"pkg/dubbo", 5},
		{"pkg/config/configjson", 5},
		{"pkg/proxy", 4},
		{"pkg/filter", 3},
		{"pkg/stream", 3},
		{"pkg/upstream", 3},
		{"pkg/router", 2},
		{"pkg/layers", 2},
		{"pkg/protocol", 1},
		{"pkg/network", 1},
		{"pkg/registry", 1},
		{"pkg/config", 1},
		{"pkg/buffer", 0},
		{"configs", 0},
		{"internal", 0},
	}
}

// importException is an import that is allowed although it breaks the layer or the plugin rule.
type importException struct{ from, to string }

// importExceptions lists the allowed imports.
func importExceptions() []importException {
	return []importException{
		// Every layer needs the constant that turns expensive checks on.
		{"pkg/buffer", "internal/invariants"},
		// Each engine uses the pure syntax package of its protocol.
		{"pkg/stream/http1", "pkg/protocol/http1"},
		{"pkg/stream/http2", "pkg/protocol/http2"},
		{"pkg/stream/xprotocol", "pkg/protocol/xprotocol"},
		// The bodies of these codecs are Hessian.
		{"pkg/protocol/xprotocol/dubbo", "pkg/protocol/hessian"},
		{"pkg/protocol/xprotocol/bolt", "pkg/protocol/hessian"},
		// pkg/dubbo fetches the metadata of an instance by a Dubbo call.
		{"pkg/dubbo/application", "pkg/protocol/xprotocol/dubbo"},
		{"pkg/dubbo/application", "pkg/protocol/hessian"},
		// The configuration dump contains the state of the Dubbo services.
		{"pkg/inspect", "pkg/dubbo"},
	}
}

// plugins lists the packages that only the registry in cmd imports, as path.Match patterns of
// directories. Everything below a match belongs to the plugin.
func plugins() []string {
	return []string{
		"pkg/protocol/http1",
		"pkg/protocol/http2",
		"pkg/protocol/hessian",
		"pkg/protocol/xprotocol/*",
		"pkg/filter/listener/*",
		"pkg/filter/network/*",
		"pkg/filter/stream/*",
		"pkg/stream/*",
		"pkg/registry/*",
		"pkg/upstream/discovery/*",
	}
}

// purePackages lists the directories of packages without side effects. An entry does not cover a
// package tree inside it (pkg/config/configjson).
func purePackages() []string {
	return []string{
		"pkg/protocol",
		"pkg/config",
		"pkg/router",
		"pkg/proxy/explain",
		"pkg/proxy/overload/trigger",
		"pkg/dubbo/plan",
		"pkg/dubbo/rules",
		"pkg/upstream/share",
		"pkg/upstream/subset",
		"pkg/xds/ads",
		"pkg/xds/bootstrap",
		"pkg/xds/resource",
		"pkg/xds/state",
	}
}

// dependencyOwner lists the owning packages of a dependency: only they may import path and the
// paths below it.
type dependencyOwner struct {
	path string
	dirs []string // with all packages below; empty: no package may import it
	// allowTests also allows the import in _test.go files and below test/.
	allowTests bool
	// exact limits the entry to path: it does not cover the paths below.
	exact  bool
	reason string
}

// dependencyOwners lists the dependencies with owning packages. No package may import a module that
// is not listed; of the standard library, only listed packages are restricted. The first matching
// entry applies.
func dependencyOwners() []dependencyOwner {
	const oneOwner = "a dependency has one owning package, so that it can be replaced"
	return []dependencyOwner{
		{path: "net/http", dirs: []string{"internal/admin", "internal/httpport", "internal/metrics", "pkg/inspect", "pkg/dubbo/api", "pkg/registry/nacos", "cmd"}, allowTests: true,
			reason: "net/http serves the admin ports and the API of Dubbo services and calls Nacos, but never carries proxied traffic"},
		{path: "log", exact: true, allowTests: true,
			reason: "logs are written with an injected log/slog.Logger"},
		{path: "html/template", allowTests: true, reason: "it makes the linker keep every exported method, which adds 2.4 MB"},
		{path: "text/template", allowTests: true, reason: "it makes the linker keep every exported method, which adds 2.4 MB"},
		{path: "expvar", reason: "the import registers a handler; metrics belong to internal/metrics"},
		{path: "C", reason: "the build needs no C compiler"},

		{path: "golang.org/x/net/http2", exact: true, dirs: []string{"pkg/protocol/http2", "pkg/stream/http2"}, allowTests: true, reason: oneOwner},
		{path: "golang.org/x/net/http2/hpack", dirs: []string{"pkg/protocol/http2", "pkg/stream/http2"}, allowTests: true, reason: oneOwner},
		{path: "golang.org/x/net", allowTests: true, reason: oneOwner},
		{path: "google.golang.org/grpc", dirs: []string{"pkg/xds"}, allowTests: true, reason: oneOwner},
		{path: "google.golang.org/protobuf/encoding/protowire", dirs: []string{"pkg/filter/stream/extauthz", "pkg/protocol/workload", "pkg/xds"}, allowTests: true, reason: oneOwner},
		{path: "google.golang.org/protobuf", dirs: []string{"pkg/xds"}, allowTests: true, reason: oneOwner},
		{path: "google.golang.org/genproto/googleapis/rpc", dirs: []string{"pkg/xds"}, allowTests: true, reason: oneOwner},
		{path: "github.com/cncf/xds", dirs: []string{"pkg/xds"}, allowTests: true, reason: oneOwner},
		{path: "github.com/envoyproxy/go-control-plane", dirs: []string{"pkg/xds"}, allowTests: true, reason: oneOwner},
		{path: "github.com/golang-jwt/jwt", dirs: []string{"pkg/filter/stream/jwtauthn"}, allowTests: true, reason: oneOwner},
		{path: "github.com/klauspost/compress", dirs: []string{"pkg/filter/coding"}, allowTests: true, reason: oneOwner},
		{path: "github.com/go-chi/chi", dirs: []string{"internal/admin", "pkg/dubbo/api"}, reason: oneOwner},
		{path: "github.com/go-zookeeper/zk", dirs: []string{"pkg/registry/zookeeper"}, allowTests: true, reason: oneOwner},
		{path: "github.com/prometheus", dirs: []string{"internal/metrics", "internal/admin"}, allowTests: true, reason: oneOwner},
		{path: "github.com/spf13", dirs: []string{"cmd"}, reason: oneOwner},
		{path: "github.com/tailscale/hujson", allowTests: true, reason: "only tests may use it: pkg/config/document reads JSON in one pass of its own"},
		{path: "go.yaml.in/yaml/v4", dirs: []string{"pkg/config/document"}, allowTests: true, reason: oneOwner},
		{path: "golang.org/x/sys", dirs: []string{"pkg/network", "cmd"}, allowTests: true, reason: oneOwner},
		{path: "golang.org/x/sync", dirs: []string{"internal/run", "pkg/upstream", "pkg/xds"}, allowTests: true, reason: oneOwner},

		{path: "github.com/google/go-cmp", allowTests: true, reason: "only tests may use it: it panics on values that it cannot compare"},
		{path: "go.uber.org/goleak", allowTests: true, reason: "only tests may use it"},
		{path: "github.com/santhosh-tekuri/jsonschema", allowTests: true, reason: "only tests may use it"},
		{path: "github.com/miekg/dns", allowTests: true, reason: "only tests may use it: the resolver is net.Resolver"},
		{path: "golang.org/x/tools", allowTests: true, reason: "only tests may use it"},
	}
}

// globalVar is a package variable that may change after start.
type globalVar struct{ dir, name string }

// mutableGlobals lists the exceptions to checkGlobals: state that the whole process shares.
func mutableGlobals() []globalVar {
	return []globalVar{
		{"pkg/buffer", "pools"},
		{"pkg/buffer", "outstanding"},
		{"pkg/dubbo", "heldRanks"},
		{"pkg/network", "pipes"},
		{"pkg/network", "lastID"},
		{"pkg/proxy/service", "routerExchanges"},
	}
}

// Maximum number of lines of a file and of a function.
const (
	fileLimit     = 600
	functionLimit = 80
)

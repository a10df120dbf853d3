package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-proxy/weft/configs"
	"github.com/weft-proxy/weft/pkg/config"
	"github.com/weft-proxy/weft/pkg/config/configjson"
	"github.com/weft-proxy/weft/pkg/config/document"
)

// source is the origin of the configuration.
type source struct {
	path    string // "": the built-in example; stdin: standard input
	lenient bool
	lint    bool // warn about likely mistakes
}

// stdin is the path that means standard input.
const stdin = "-"

// builtinName is the name of the built-in example in diagnostics.
const builtinName = "quickstart.json"

// rejectArgs rejects arguments, because users may pass a file without -c.
func rejectArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: specify the file with -c %s", args[0], args[0])
	}
	return nil
}

// open reads the configuration. The file is nil if the diagnostics contain errors.
func (s source) open() (*configjson.File, document.Diagnostics) {
	file, _, diagnostics := s.openMerged()
	return file, diagnostics
}

// openMerged reads the configuration like open. It also returns the configuration that includes the
// static resources of the Envoy bootstrap.
func (s source) openMerged() (*configjson.File, *config.Snapshot, document.Diagnostics) {
	o := configjson.Options{Lenient: s.lenient, Lint: s.lint}
	switch s.path {
	case "":
		o.Files = embedded{}
	case stdin:
		o.Files = standardInput{}
	}
	file, diagnostics := configjson.Open(s.name(), capabilities(), o)
	if file == nil {
		return nil, nil, diagnostics
	}
	merged, mergeDiagnostics := mergeStatic(file)
	diagnostics = append(diagnostics, mergeDiagnostics...)
	if merged != nil {
		diagnostics = append(diagnostics, bindConflicts(file, bindAddresses(file.Snapshot, merged))...)
	}
	if merged == nil || diagnostics.Failed() {
		return nil, nil, diagnostics
	}
	return file, merged, diagnostics
}

// name returns the name of the source in diagnostics and on the admin port.
func (s source) name() string {
	switch s.path {
	case "":
		return builtinName
	case stdin:
		return "standard input"
	}
	return s.path
}

// standardInput reads the configuration from standard input, and directories that it names from the
// file system.
type standardInput struct{}

func (standardInput) ReadFile(string) ([]byte, error) { return io.ReadAll(os.Stdin) }

func (standardInput) ReadDir(name string) ([]os.DirEntry, error) { return os.ReadDir(name) }

// embedded is the file system of the built-in example.
type embedded struct{}

func (embedded) ReadFile(string) ([]byte, error) { return configs.Quickstart, nil }

func (embedded) ReadDir(name string) ([]os.DirEntry, error) {
	return nil, &os.PathError{Op: "readdir", Path: name, Err: os.ErrNotExist}
}

// isQuickstart reports whether the source is the built-in example, or an identical file.
func (s source) isQuickstart() bool {
	if s.path == "" {
		return true
	}
	if s.path == stdin {
		return false
	}
	data, err := os.ReadFile(s.path)
	return err == nil && bytes.Equal(data, configs.Quickstart)
}

func capabilities() configjson.Capabilities {
	c := configjson.Capabilities{
		NetworkFilters:    []string{configjson.ProxyFilter, configjson.TCPProxyFilter, configjson.UDPProxyFilter},
		ConnectionFilters: connectionFilters(),
		StreamFilters:     streamFilters(),
		ClusterTypes:      []config.ClusterType{config.ClusterStatic, config.ClusterStrictDNS, config.ClusterLogicalDNS, config.ClusterOriginalDst},
	}
	c.XDS = hasXDS
	c.DubboRegistries = slices.Sorted(maps.Keys(registries()))
	for _, p := range protocols(nil, nil) {
		c.Protocols = append(c.Protocols, p.Name)
	}
	c.Policies = slices.Sorted(maps.Keys(policies()))     // a fixed order, for the schema
	c.Policies = append(c.Policies, config.LBOriginalDst) // not in policies(): it has no balancer
	return c
}

// reloadHint returns the command that reloads this process.
func (s source) reloadHint(c *config.Snapshot) string {
	signal := fmt.Sprintf("kill -HUP %d", os.Getpid())
	switch {
	case c.Admin == nil:
		return signal
	case c.Admin.Address == defaultAdminAddress:
		return "weft reload, or " + signal
	}
	return fmt.Sprintf("weft reload --admin %s, or %s", c.Admin.Address, signal)
}

// banner returns the text that start prints: the listeners, and commands to try.
func banner(s source, c *config.Snapshot) string {
	var b strings.Builder
	fmt.Fprintf(&b, "weft %s is ready: %s, %s\n", version, pluralize(len(c.Listeners), "listener"), pluralize(len(c.Clusters), "cluster"))
	for _, l := range c.Listeners {
		side := "egress"
		if l.Ingress {
			side = "ingress"
		}
		fmt.Fprintf(&b, "  %-12s %-8s %s\n", l.Name, side, l.Address)
	}
	if c.Admin != nil {
		fmt.Fprintf(&b, "  %-12s %-8s %s\n", "admin", "", c.Admin.Address)
	}
	if s.path != "" && s.path != stdin {
		fmt.Fprintf(&b, "Reload with: %s\n", s.reloadHint(c))
	}
	if s.isQuickstart() {
		b.WriteString("\nTry:    curl -i http://127.0.0.1:2045/\n" +
			"Expect: HTTP/1.1 200 OK and \"Hello from the application, through two Wefts.\"\n" +
			"Then:   curl http://127.0.0.1:34901/   the pages of the admin port\n\n")
	}
	return b.String()
}
